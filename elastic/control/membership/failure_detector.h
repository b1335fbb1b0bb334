/// \file
/// Whether a silent worker is lost. Silence alone does not tell a dead worker from one that is cut
/// off from the coordinator, and a worker that trains on must not be given up:
///
/// - A completed step proves all members of the generation alive, for each of them votes. A silent
///   member is lost once its lease is over *and* no step was completed for as long.
/// - When no worker at all is heard, the coordinator is cut off. It waits, and once a worker is
///   heard again it gives all of them time to come back.
/// - While no steps run, nothing proves a silent member alive, and others wait for the workers that
///   take part in a transition: the lease decides, or the grace period of a broken connection.
/// - No worker waits for a standby worker. A silent one becomes absent: no plan counts on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/membership/roster.h"

namespace heddle::elastic {

/// Judges silent workers. Thread: one caller at a time. A copy is an independent machine.
class FailureDetector {
 public:
  /// The inputs of a judgement.
  struct View {
    const Roster& roster;
    const Generations& generations;
    const std::set<std::string>& involved;  ///< Workers in the transition in progress.
    bool steps_run = false;   ///< The generation in force trains, and no accusation is pending.
    double step_seconds = 0;  ///< Seconds of one of its steps, measured or predicted.
    const JobPolicy& policy;
    Time now;
  };

  /// A worker is heard at `now`; called before the roster records that. Returns true for the first
  /// worker after none was heard for half a lease.
  bool NoteHeard(const Roster& roster, const JobPolicy& policy, Time now);
  /// No worker is lost before `until`, because the silence was the coordinator's own.
  void Excuse(Time until) { excused_until_ = std::max(excused_until_, until); }
  /// A member of `generation` has applied `step`.
  void NoteStep(int64_t generation, int64_t step, Time now);

  struct Verdict {
    std::vector<Loss> lost = {};
    std::set<std::string> absent = {};
  };
  /// Judges all workers. Every event that had arrived by `view.now` has been handled before.
  Verdict Judge(const View& view);
  /// When a step was last completed, or the generation in force began.
  Time stepped_at() const { return stepped_at_; }
  /// Start of the silence of all workers, once it lasts a lease, as of the last Judge; else
  /// nullopt.
  std::optional<Time> cut_off_since() const { return cut_off_since_; }
  /// No reply deadline expires before this time.
  Time excused_until() const { return excused_until_; }
  /// Makes NextDeadline due at once, because the inputs of the last Judge have changed.
  void Reconsider() { judged_at_ = Time(); }
  /// The earliest time at which Judge may decide otherwise without another event.
  std::optional<Time> NextDeadline(const Roster& roster,
                                   double step_seconds,
                                   const JobPolicy& policy) const;

 private:
  void JudgeOne(const Worker& worker,
                bool a_member_is_heard,
                const View& view,
                Verdict& verdict) const;

  Time judged_at_;
  Time excused_until_;
  std::optional<Time> cut_off_since_;
  int64_t generation_ = 0;  ///< Generation of step_.
  int64_t step_ = -1;       ///< The newest step that a member has applied.
  Time stepped_at_;         ///< When step_ became known.
};

}  // namespace heddle::elastic
