/// \file
/// Which worker is at fault when workers report that they lost a peer or wait for each other.
///
/// Accusations are collected for one probe window, because the reporter may itself be at fault. An
/// accused worker that fell silent is lost. If all accused workers are still heard, a link between
/// two live workers is broken: the worker with the most accusers is lost, and ties go to the higher
/// rank, so that the two ends of a link never alternate.
///
/// A worker that hangs may have no accuser, or another worker may be accused; the wait-for graph
/// finds it (wait_graph.h). In a circle of waits the culprit cannot be told from the others, so the
/// first circle costs no worker: the fence that begins a recovery ends the waits, and a worker that
/// hangs does not reply to it. If a circle comes again, without a step or a loss between, its
/// worker of the highest rank is lost. If no worker does anything and there is no circle, each such
/// standstill leads to a recovery: again, a worker that hangs does not reply to the fence.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/membership/wait_graph.h"

namespace heddle::elastic {

/// Collects accusations and judges them. Thread: one caller at a time. A copy is an independent
/// machine.
class Blame {
 public:
  struct Verdict {
    std::vector<Loss> losses;
    bool unknown = false;  ///< Something failed, and no worker is known to be at fault.
    /// If `unknown`: what each worker reported, by name; "" is the name for the wait-for graph.
    std::map<std::string, std::string> reports = {};
  };

  /// Records an accusation. `accused` empty: the accuser cannot name the peer, and any member fits.
  /// Returns the workers that fit and are disconnected already: they are lost without a grace
  /// period.
  std::vector<Loss> Accuse(const std::string& accuser,
                           const std::string& accused,
                           const std::string& reason,
                           const Roster& roster,
                           const Generations& generations,
                           Time now);
  /// True if the worker is accused; a member also fits an accusation without a name.
  bool Fits(const std::string& worker, bool is_member) const;
  /// The workers that accuse it; for a member also those that name no worker.
  std::vector<std::string> AccusersOf(const std::string& worker, bool is_member) const;
  /// Judges and clears all accusations once the probe window of one is over; an empty verdict
  /// before. `ranks`: the workers that are connected to each other, by rank.
  Verdict Judge(const Roster& roster,
                const std::vector<std::string>& ranks,
                Duration probe,
                Time now);

  /// True if waits are due to be judged; then not again before a sixteenth of `limit` has passed.
  bool WaitsAreDue(Duration limit, Time now);
  /// Finds the workers that hang among those that run something together. `unknown`: none of them
  /// goes on, and none is known to be at fault. `limit` and `patience`: as WaitGraph::Judge.
  Verdict JudgeWaits(const WaitGraph& waits, Duration limit, Duration patience, Time now);
  /// A step was completed or a worker was lost: the next circle of waits counts as the first.
  void ForgetCircle() { had_circle_ = false; }

  bool empty() const { return accusations_.empty(); }
  void Clear() { accusations_.clear(); }
  std::optional<Time> NextDeadline(Duration probe) const;

 private:
  struct Accusation {
    std::string accuser;
    std::string accused;
    std::string reason;
    Time at;
  };
  static Loss MostAccused(const std::vector<Accusation>& accusations,
                          const Roster& roster,
                          const std::vector<std::string>& ranks);

  std::vector<Accusation> accusations_;
  Time waits_judged_at_;
  bool had_circle_ = false;
};

}  // namespace heddle::elastic
