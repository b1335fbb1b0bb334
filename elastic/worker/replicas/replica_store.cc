#include "elastic/worker/replicas/replica_store.h"

#include <algorithm>
#include <utility>

namespace heddle::elastic {

ReplicaStore::ReplicaStore(metrics::Registry& registry)
    : bytes_(registry.GetGauge("heddle_replica_bytes",
                               "Memory that holds parts of snapshots, or is kept for them.")) {}

ReplicaStore::Snapshots::iterator ReplicaStore::Drop(Snapshots::iterator snapshot) {
  for (auto& [owner, part] : snapshot->second.parts) {
    if (part.use_count() == 1) {  // Otherwise it is still being read.
      spare_.push_back(std::move(part));
    }
  }
  return snapshots_.erase(snapshot);
}

void ReplicaStore::CountBytes() {
  int64_t bytes = 0;
  for (const auto& [key, snapshot] : snapshots_) {
    for (const auto& [owner, part] : snapshot.parts) {
      bytes += part->memory.size();
    }
  }
  for (const Part& part : spare_) {
    bytes += part->memory.size();
  }
  bytes_.Set(static_cast<double>(bytes));
}

void ReplicaStore::Begin(const SnapshotKey& key) {
  const MutexLock lock(mutex_);
  bool kept = false;
  for (auto snapshot = snapshots_.end(); snapshot != snapshots_.begin();) {
    --snapshot;
    if (snapshot->second.whole && !kept) {
      kept = true;
    } else {
      snapshot = Drop(snapshot);
    }
  }
  snapshots_[key] = {};
}

void ReplicaStore::MarkWhole(const SnapshotKey& key) {
  const MutexLock lock(mutex_);
  if (const auto found = snapshots_.find(key); found != snapshots_.end()) {
    found->second.whole = true;
  }
}

void ReplicaStore::DropAfter(int64_t step) {
  const MutexLock lock(mutex_);
  for (auto snapshot = snapshots_.begin(); snapshot != snapshots_.end();) {
    snapshot = snapshot->first.step > step ? Drop(snapshot) : std::next(snapshot);
  }
  CountBytes();
}

Result<std::shared_ptr<checkpoint::MemoryShard>> ReplicaStore::Take(int64_t bytes) {
  Part part;
  {
    const MutexLock lock(mutex_);
    // Takes the smallest spare that is large enough, else the largest.
    const auto better = [bytes](const Part& a, const Part& b) {
      const int64_t size_a = a->memory.size();
      const int64_t size_b = b->memory.size();
      const bool fits_a = size_a >= bytes;
      return fits_a != (size_b >= bytes) ? fits_a : fits_a ? size_a < size_b : size_a > size_b;
    };
    const auto best = std::min_element(spare_.begin(), spare_.end(), better);
    if (best != spare_.end()) {
      part = std::move(*best);
      spare_.erase(best);
    }
  }
  if (part == nullptr) {
    part = std::make_shared<checkpoint::MemoryShard>();
  }
  HEDDLE_RETURN_IF_ERROR(part->memory.Extend(bytes));
  part->part = {};
  return part;
}

void ReplicaStore::Stock(int64_t bytes) {
  {
    const MutexLock lock(mutex_);
    if (bytes == 0 || !spare_.empty() || snapshots_.size() > 1) {
      return;
    }
  }
  auto part = std::make_shared<checkpoint::MemoryShard>();
  part->memory.Reserve(bytes).IgnoreError("the snapshot that needs the memory says so");
  const MutexLock lock(mutex_);
  spare_.push_back(std::move(part));
  CountBytes();
}

void ReplicaStore::Trim() {
  std::vector<Part> unused;  // Declared before the lock, and so freed after it is released.
  const MutexLock lock(mutex_);
  unused.swap(spare_);
  CountBytes();
}

void ReplicaStore::Put(const SnapshotKey& key,
                       int owner,
                       std::shared_ptr<checkpoint::MemoryShard> part) {
  const MutexLock lock(mutex_);
  if (const auto found = snapshots_.find(key); found != snapshots_.end()) {
    found->second.parts[owner] = std::move(part);
    CountBytes();
  }
}

Result<std::vector<std::shared_ptr<const checkpoint::MemoryShard>>> ReplicaStore::Find(
    const SnapshotKey& key, const std::vector<int>& owners) const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const checkpoint::MemoryShard>> parts;
  const auto snapshot = snapshots_.find(key);
  for (const int owner : owners) {
    if (snapshot == snapshots_.end() || !snapshot->second.parts.contains(owner)) {
      return NotFoundError("rank {}'s part of the snapshot of step {} in generation {} is not here",
                           owner, key.step, key.generation);
    }
    parts.push_back(snapshot->second.parts.at(owner));
  }
  return parts;
}

std::vector<wire::Halted::Replicas> ReplicaStore::List() const {
  const MutexLock lock(mutex_);
  std::vector<wire::Halted::Replicas> list;
  for (const auto& [key, snapshot] : snapshots_) {
    if (snapshot.parts.empty()) {
      continue;
    }
    wire::Halted::Replicas& held = list.emplace_back();
    held.set_generation(key.generation);
    held.set_step(key.step);
    for (const auto& [owner, part] : snapshot.parts) {
      held.add_owners(owner);
      held.set_raw_bytes(held.raw_bytes() + part->part.raw_bytes);
    }
  }
  return list;
}

}  // namespace heddle::elastic
