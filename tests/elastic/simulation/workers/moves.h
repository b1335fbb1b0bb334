/// \file
/// The simulated connections between workers, the moves of state and the measurement of links.
#pragma once

#include <string>

#include "base/status.h"
#include "tests/elastic/simulation/history/history.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// The milliseconds without an answer after which an operation of the data plane fails.
inline double OperationTimeoutMs(const SimOptions& options) {
  return options.patient_calls ? 60'000 : 3000;
}

/// The moves of state between workers. Thread: one caller.
class Moves {
 public:
  explicit Moves(Cluster& cluster) : cluster_(cluster) {}

  void BeginProbe(SimWorker& worker, const wire::MeasureLinks& request);
  void Begin(SimWorker& worker, const MoveState& move);
  /// Ends the worker's move, and tells its member machine. An OK `status`: the state that the start
  /// names was read, and is checked.
  void End(SimWorker& worker, const Status& status, const std::string& peer);

 private:
  /// Looks every few milliseconds until all members have come and, where members leave, until all
  /// have received what they need from those (`moved`).
  void Look(SimWorker& worker, int64_t number, Time deadline, bool moved);
  /// Whether the worker need not wait for others any longer; with an error its move has ended.
  bool Await(SimWorker& worker, Time deadline, bool all_have_moved);
  void Complete(SimWorker& worker);
  void Refuse(SimWorker& worker, const std::string& holder);
  static bool HasParts(const SimWorker& worker, const wire::Start& start);
  std::string GiverTo(const SimWorker& worker);
  bool StageAll(SimWorker& worker, const MoveState& move, StateMoved& moved);
  std::optional<SimParameter> Read(SimWorker& worker,
                                   const wire::Start& start,
                                   int32_t parameter,
                                   StateMoved& moved);
  std::optional<SimParameter> ReadHeld(SimWorker& worker,
                                       const wire::Start& start,
                                       int32_t parameter,
                                       StateMoved& moved);

  Cluster& cluster_;
};

}  // namespace heddle::elastic
