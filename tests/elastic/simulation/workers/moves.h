/// \file
/// Workers that connect to each other and move state, and the measurement of their links.
#pragma once

#include <string>

#include "base/status.h"
#include "tests/elastic/simulation/history/history.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// An operation of the data plane that hears nothing for so long fails.
inline double OperationTimeoutMs(const SimOptions& options) {
  return options.patient_calls ? 60'000 : 3000;
}

/// Thread: one caller.
class Moves {
 public:
  explicit Moves(Cluster& cluster) : cluster_(cluster) {}

  void BeginProbe(SimWorker& worker, const wire::MeasureLinks& request);
  void Begin(SimWorker& worker, const MoveState& move);
  /// Not an error: what the start names was read, and is checked.
  void End(SimWorker& worker, const Status& status, const std::string& peer);

 private:
  /// Looks again every few milliseconds: until all have come and, where some leave, until all have
  /// what they need of them (`moved`).
  void Look(SimWorker& worker, int64_t number, Time deadline, bool moved);
  /// Whether it need not wait for others any longer; with an error the move has ended.
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
