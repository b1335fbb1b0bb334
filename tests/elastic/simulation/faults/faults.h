/// \file
/// Carries out the faults of a history, each at its time.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/clock.h"
#include "elastic/protocol/protocol.pb.h"
#include "tests/elastic/simulation/history/fault.h"

namespace heddle::elastic {

class Cluster;

/// The reason of a job's end that an operator asked for.
inline constexpr const char* kCancelled = "it was cancelled";

/// Injects the faults of a history. Thread: one caller.
class FaultInjector {
 public:
  explicit FaultInjector(Cluster& cluster) : cluster_(cluster) {}

  /// Schedules all faults of the history's options.
  void Schedule();
  /// Makes `call` up to 150 ms after the job's phase is `phase`. Another call of OnceIn replaces
  /// this one.
  void OnceIn(const std::string& phase, std::function<void()> call);
  /// A generation begins after `step`: by chance, workers without a part in it lose their streams.
  void NoteGo(const wire::Prepare& prepare, int64_t step);
  /// The coordinator has heard the state of a halted worker: by chance, a few times in a history,
  /// the worker's way to it is cut for a time, at most until the next generation begins.
  void NoteHalted(const std::string& key);
  /// Looks whether the job is in the phase that OnceIn waits for.
  void LookForPhase();
  /// Defers end() to `end` at least.
  void LastUntil(Time end) { end_ = std::max(end_, end); }
  /// The time at which all faults that end by themselves have ended.
  Time end() const { return end_; }

 private:
  void Inject(const Fault& fault);
  /// Ends all faults that do not end by themselves, and starts two workers.
  void HealAll();

  /// Whether all members of the newest generation run steps. A member whose way to the coordinator
  /// is cut before it runs keeps the others waiting, and they report it.
  bool AllMembersRun() const;

  Cluster& cluster_;
  Time end_;
  int cuts_left_ = 3;                 ///< How many halted workers may still be cut off.
  std::set<std::string> cut_halted_;  ///< Keys of halted workers that were cut off.
  std::string phase_;                 ///< The phase that OnceIn waits for; empty: none.
  std::function<void()> once_in_phase_;
};

}  // namespace heddle::elastic
