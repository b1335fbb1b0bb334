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

/// Why a job ends that people want no more.
inline constexpr const char* kCancelled = "it was cancelled";

/// Thread: one caller.
class FaultInjector {
 public:
  explicit FaultInjector(Cluster& cluster) : cluster_(cluster) {}

  void Schedule();
  /// As soon as the job is in the phase, and some moments later. Another wish replaces this one.
  void OnceIn(const std::string& phase, std::function<void()> call);
  /// A generation begins after a step. Who has no part in it may lose its stream just then.
  void NoteGo(const wire::Prepare& prepare, int64_t step);
  /// The coordinator has heard what a worker holds that was halted. Its way there may be cut just
  /// then, for a time or until the next generation begins, a few times in a history.
  void NoteHalted(const std::string& key);
  /// The coordinator may have come to another phase.
  void LookForPhase();
  /// Something else happens until then.
  void LastUntil(Time end) { end_ = std::max(end_, end); }
  /// When all are over that end by themselves.
  Time end() const { return end_; }

 private:
  void Inject(const Fault& fault);
  /// What does not end by itself does, and two workers come.
  void HealAll();

  /// Whose way to the coordinator is cut before it has begun, keeps the others waiting: they accuse
  /// it.
  bool AllMembersRun() const;

  Cluster& cluster_;
  Time end_;
  int cuts_left_ = 3;                 ///< Of halted workers.
  std::set<std::string> cut_halted_;  ///< Those, by key, until a generation begins.
  std::string phase_;                 ///< That is waited for; empty: none.
  std::function<void()> once_in_phase_;
};

}  // namespace heddle::elastic
