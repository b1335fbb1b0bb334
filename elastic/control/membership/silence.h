/// \file
/// Whether a worker that says nothing is lost. Silence alone does not tell a dead worker from one
/// whose way to the coordinator is cut, and whoever trains on must not be given up:
///
/// - Steps that are completed prove all members of the generation alive, for each of them votes.
///   A silent member is lost once its lease is over *and* no step was completed for as long.
/// - When nobody at all is heard, it is the coordinator that is cut off. It waits, and gives
///   everybody time to come back once the first one is heard again.
/// - While no steps run, nobody speaks for a member, and others wait for whoever takes part in a
///   change: its lease decides, or the grace of a broken stream.
/// - Nobody waits for a worker that stands by. It is absent, so that no plan counts on it.
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

/// Thread: one caller at a time. A copy is an independent machine.
class Silence {
 public:
  /// What silence is judged by.
  struct Scene {
    const Roster& roster;
    const Generations& generations;
    const std::set<std::string>& involved;  ///< In the change that is under way.
    bool steps_run = false;   ///< The generation in force trains, and nobody accuses anybody.
    double step_seconds = 0;  ///< Of a step of it, measured or predicted.
    const JobPolicy& policy;
    Time now;
  };

  /// Somebody is heard at `now`; before the roster counts it. True: the first one after nobody was
  /// heard for half a lease.
  bool Hear(const Roster& roster, const JobPolicy& policy, Time now);
  /// Nobody is lost before `until`: the silence was the coordinator's own.
  void Excuse(Time until) { excused_until_ = std::max(excused_until_, until); }
  /// A member of `generation` has applied `step`.
  void NoteStep(int64_t generation, int64_t step, Time now);

  struct Verdict {
    std::vector<Loss> lost = {};
    std::set<std::string> absent = {};
  };
  /// What had come by `now` was handled before.
  Verdict Judge(const Scene& scene);
  /// When a step was completed last, or the generation in force began.
  Time stepped_at() const { return stepped_at_; }
  /// Since when nobody is heard, as of the last Judge; none: somebody is.
  std::optional<Time> cut_off_since() const { return cut_off_since_; }
  /// What somebody owes is not due before.
  Time excused_until() const { return excused_until_; }
  /// What Judge went by has changed: it is to be asked again at once.
  void Reconsider() { judged_at_ = Time(); }
  /// When Judge may say something else than it did, if nothing happens before.
  std::optional<Time> NextDeadline(const Roster& roster,
                                   double step_seconds,
                                   const JobPolicy& policy) const;

 private:
  void JudgeOne(const Worker& worker,
                bool a_member_is_heard,
                const Scene& scene,
                Verdict& verdict) const;

  Time judged_at_;
  Time excused_until_;
  std::optional<Time> cut_off_since_;
  int64_t generation_ = 0;  ///< Of the newest step.
  int64_t step_ = -1;
  Time stepped_at_;  ///< When it became known here.
};

}  // namespace heddle::elastic
