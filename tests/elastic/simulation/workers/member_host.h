/// \file
/// The shell of the shipped member machine: its messages, its time, and what its trainer is asked
/// for, at the trainer's pace.
#pragma once

#include <functional>
#include <string>

#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// Thread: one caller.
class MemberHost {
 public:
  explicit MemberHost(Cluster& cluster) : cluster_(cluster) {}

  /// A new process, which connects soon. Returns its key.
  std::string Spawn(const std::string& name);
  void Kill(const std::string& key);
  /// Forwards.
  void JumpClock(SimWorker& worker, Duration time);
  void Tell(SimWorker& worker, const MemberEvent& event);
  /// Work of the trainer. Now and then it takes longer than any deadline, with progress; or it has
  /// no end.
  /// It does nothing any more.
  void Hang(SimWorker& worker);
  void WorkFor(const std::string& key,
               double low_ms,
               double high_ms,
               std::function<void(SimWorker&)> call);

 private:
  void Perform(SimWorker& worker, const MemberAction& action);
  void Lower(SimWorker& worker, const LowerPlan& lower);
  void Abort(SimWorker& worker, const AbortBelow& abort);
  void Settle(SimWorker& worker, const SettleStep& settle);
  void Adopt(SimWorker& worker, const AdoptState& adopt);
  void Exit(SimWorker& worker, const ExitWorker& exit);
  void ScheduleTick(SimWorker& worker);
  void WorkUntil(const std::string& key, Time end, std::function<void(SimWorker&)> call);

  Cluster& cluster_;
};

}  // namespace heddle::elastic
