/// \file
/// The parts of snapshots that this worker holds in memory: its own and those that it keeps for
/// others. At most two snapshots: the newest that is whole, on all workers together, and the one
/// that is being made after it. Memory goes from the one dropped to the one that begins.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "checkpoint/save/memory_part.h"
#include "elastic/protocol/protocol.pb.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// Of one step, taken in one generation: its plan says what each rank's part is.
struct SnapshotKey {
  int64_t step = 0;
  int64_t generation = 0;
  friend auto operator<=>(const SnapshotKey&, const SnapshotKey&) = default;
};

/// Thread: any.
class ReplicaStore {
 public:
  explicit ReplicaStore(metrics::Registry& registry);

  /// A new snapshot is being made: of those before, only the newest whole one stays.
  void Begin(const SnapshotKey& key) HEDDLE_EXCLUDES(mutex_);
  /// Every worker has all that it should of this snapshot.
  void MarkWhole(const SnapshotKey& key) HEDDLE_EXCLUDES(mutex_);
  /// Those of later steps are of a history that is not this job's any more.
  void DropAfter(int64_t step) HEDDLE_EXCLUDES(mutex_);

  /// Memory for a part, of `bytes` at least. Errors: kResourceExhausted.
  Result<std::shared_ptr<checkpoint::MemoryPart>> Take(int64_t bytes) HEDDLE_EXCLUDES(mutex_);
  /// Touches memory for one more part of `bytes`, unless what is dropped next will do.
  void Stock(int64_t bytes) HEDDLE_EXCLUDES(mutex_);
  /// Gives back memory that is not in use.
  void Trim() HEDDLE_EXCLUDES(mutex_);

  /// A complete part. Dropped at once when its snapshot is not held any more.
  void Put(const SnapshotKey& key, int owner, std::shared_ptr<checkpoint::MemoryPart> part)
      HEDDLE_EXCLUDES(mutex_);
  /// The parts of these owners. Errors: kNotFound.
  Result<std::vector<std::shared_ptr<const checkpoint::MemoryPart>>> Find(
      const SnapshotKey& key, const std::vector<int>& owners) const HEDDLE_EXCLUDES(mutex_);
  /// What is held, oldest step first.
  std::vector<wire::Halted::Replicas> List() const HEDDLE_EXCLUDES(mutex_);

 private:
  using Part = std::shared_ptr<checkpoint::MemoryPart>;
  struct Snapshot {
    bool whole = false;
    std::map<int, Part> parts;  ///< By owner.
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
