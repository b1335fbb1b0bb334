/// \file
/// Snapshots in simulated workers' memory.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// Thread: one caller.
class Snapshots {
 public:
  explicit Snapshots(Cluster& cluster) : cluster_(cluster) {}

  /// After a step, where one is due.
  void Take(SimWorker& worker);
  void Forget(SimWorker& worker, int64_t after_step);
  /// One parameter of the snapshot that is moved, from any of the holders of its part.
  std::optional<SimParameter> Read(const SimWorker& worker,
                                   const wire::Start& start,
                                   int32_t parameter);

 private:
  void Keep(SimWorker& worker, const SnapshotKey& key, int32_t owner, const SimState& part);
  void Tell(SimWorker& worker);

  Cluster& cluster_;
};

}  // namespace heddle::elastic
