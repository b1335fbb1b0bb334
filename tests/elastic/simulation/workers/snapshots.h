/// \file
/// The snapshots in simulated workers' memory.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// The snapshots in workers' memory. Thread: one caller.
class Snapshots {
 public:
  explicit Snapshots(Cluster& cluster) : cluster_(cluster) {}

  /// Takes a snapshot after a step, if one is due.
  void Take(SimWorker& worker);
  void Forget(SimWorker& worker, int64_t after_step);
  /// A parameter of the snapshot that `start` names, from any holder of its shard; nullopt: no
  /// holder could be read.
  std::optional<SimParameter> Read(const SimWorker& worker,
                                   const wire::Start& start,
                                   int32_t parameter);

 private:
  void Keep(SimWorker& worker, const SnapshotKey& key, int32_t owner, const SimState& part);
  void Tell(SimWorker& worker);

  Cluster& cluster_;
};

}  // namespace heddle::elastic
