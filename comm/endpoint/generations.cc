#include "comm/endpoint/generations.h"

#include <algorithm>
#include <utility>

namespace heddle::comm {

Status Generations::Begin(const std::shared_ptr<Group>& group) {
  const int64_t generation = group->options().generation;
  const MutexLock lock(mutex_);
  if (generation < oldest_) {
    return AbortedError("generation {} is stale: {} has begun", generation, oldest_);
  }
  std::weak_ptr<Group>& place = groups_[generation];
  if (const auto other = place.lock(); other != nullptr && !other->ended()) {
    return FailedPreconditionError("generation {} is connected already", generation);
  }
  oldest_ = generation;
  place = group;
  std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
  return Status::Ok();
}

std::shared_ptr<Group> Generations::Find(int64_t generation) const {
  std::shared_ptr<Group> group;
  {
    const MutexLock lock(mutex_);
    const auto found = groups_.find(generation);
    group = found == groups_.end() ? nullptr : found->second.lock();
  }
  return group != nullptr && !group->ended() ? group : nullptr;
}

std::vector<std::shared_ptr<Group>> Generations::Newest() const {
  std::vector<std::shared_ptr<Group>> groups;
  const MutexLock lock(mutex_);
  for (auto entry = groups_.rbegin(); entry != groups_.rend(); ++entry) {
    if (auto group = entry->second.lock(); group != nullptr && !group->ended()) {
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

bool Generations::IsStale(int64_t generation) const {
  const MutexLock lock(mutex_);
  return generation < oldest_;
}

std::vector<std::shared_ptr<Group>> Generations::FenceBelow(int64_t generation) {
  std::vector<std::shared_ptr<Group>> stale;
  const MutexLock lock(mutex_);
  oldest_ = std::max(oldest_, generation);
  for (const auto& [number, weak] : groups_) {
    if (auto group = weak.lock(); group != nullptr && number < generation) {
      stale.push_back(std::move(group));
    }
  }
  return stale;
}

}  // namespace heddle::comm
