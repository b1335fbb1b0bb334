/// \file
/// The shards of snapshots that this worker holds in memory: its own, and those that it keeps for
/// other workers. They are of at most two snapshots: the newest one that is complete on all workers
/// together, and the one that is being made after it. The memory of a dropped snapshot is reused
/// for the next one.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "checkpoint/save/memory_shard.h"
#include "elastic/protocol/protocol.pb.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// A snapshot is of one step and taken in one generation, whose plan decides each rank's shard.
struct SnapshotKey {
  int64_t step = 0;
  int64_t generation = 0;
  friend auto operator<=>(const SnapshotKey&, const SnapshotKey&) = default;
};

/// The shards in memory, by snapshot and by the rank that owns them. Thread: any.
class ReplicaStore {
 public:
  explicit ReplicaStore(metrics::Registry& registry);

  /// Begins a snapshot, and drops all earlier ones but the newest whole one.
  void Begin(const SnapshotKey& key) HEDDLE_EXCLUDES(mutex_);
  /// Marks a snapshot as whole: every worker has all of its shards.
  void MarkWhole(const SnapshotKey& key) HEDDLE_EXCLUDES(mutex_);
  /// Drops the snapshots of steps after `step`, which will be run again.
  void DropAfter(int64_t step) HEDDLE_EXCLUDES(mutex_);

  /// Returns memory for a shard, of at least `bytes`. Errors: kResourceExhausted.
  Result<std::shared_ptr<checkpoint::MemoryShard>> Take(int64_t bytes) HEDDLE_EXCLUDES(mutex_);
  /// Reserves memory for one more shard of `bytes`, unless spare memory is there or the next Begin
  /// will drop a snapshot.
  void Stock(int64_t bytes) HEDDLE_EXCLUDES(mutex_);
  /// Frees spare memory.
  void Trim() HEDDLE_EXCLUDES(mutex_);

  /// Adds a complete shard; drops it if its snapshot is not held any more.
  void Put(const SnapshotKey& key, int owner, std::shared_ptr<checkpoint::MemoryShard> part)
      HEDDLE_EXCLUDES(mutex_);
  /// Returns the shards of these owners. Errors: kNotFound (one of them is not held).
  Result<std::vector<std::shared_ptr<const checkpoint::MemoryShard>>> Find(
      const SnapshotKey& key, const std::vector<int>& owners) const HEDDLE_EXCLUDES(mutex_);
  /// Lists the snapshots with the owners of the held shards, oldest step first.
  std::vector<wire::Halted::Replicas> List() const HEDDLE_EXCLUDES(mutex_);

 private:
  using Part = std::shared_ptr<checkpoint::MemoryShard>;
  struct Snapshot {
    bool whole = false;
    std::map<int, Part> parts;  ///< Shards by owner.
  };
  using Snapshots = std::map<SnapshotKey, Snapshot>;

  Snapshots::iterator Drop(Snapshots::iterator snapshot) HEDDLE_REQUIRES(mutex_);
  void CountBytes() HEDDLE_REQUIRES(mutex_);

  metrics::Gauge& bytes_;
  mutable Mutex mutex_;
  Snapshots snapshots_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<Part> spare_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::elastic
