/// \file
/// The simulated shell of the shipped member machine: its messages, its clock, and the actions of
/// its trainer, at the trainer's pace.
#pragma once

#include <functional>
#include <string>

#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// The shell of all workers' member machines. Thread: one caller.
class MemberHost {
 public:
  explicit MemberHost(Cluster& cluster) : cluster_(cluster) {}

  /// Starts a worker's process, which connects soon. `name`: the name that it asks for; empty:
  /// none. Returns its key.
  std::string Spawn(const std::string& name);
  void Kill(const std::string& key);
  /// Moves the clock of the worker's machine forwards.
  void JumpClock(SimWorker& worker, Duration time);
  /// Passes an event to the member machine, and performs its actions.
  void Tell(SimWorker& worker, const MemberEvent& event);
  /// The trainer hangs: it does nothing any more.
  void Hang(SimWorker& worker);
  /// Work of the trainer: makes `call` between `low_ms` and `high_ms` from now. By chance the work
  /// takes longer than any deadline, with progress, or never ends.
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
