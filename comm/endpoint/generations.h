/// \file
/// The groups of an endpoint by generation. The oldest generation that is accepted only increases.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/group/group.h"

namespace heddle::comm {

/// The groups of an endpoint by generation. Thread: any. It holds weak references to groups.
class Generations {
 public:
  /// Adds `group` and makes its generation the oldest that is accepted. Errors: kAborted (a newer
  /// generation has begun), kFailedPrecondition (the generation is connected already).
  Status Begin(const std::shared_ptr<Group>& group) HEDDLE_EXCLUDES(mutex_);
  /// The group of a generation; null: there is none, or it has ended.
  std::shared_ptr<Group> Find(int64_t generation) const HEDDLE_EXCLUDES(mutex_);
  /// The groups that have not ended, newest generation first.
  std::vector<std::shared_ptr<Group>> Newest() const HEDDLE_EXCLUDES(mutex_);
  bool IsStale(int64_t generation) const HEDDLE_EXCLUDES(mutex_);
  /// Refuses generations below `generation` from now on. Returns their groups, which the caller
  /// must end.
  std::vector<std::shared_ptr<Group>> FenceBelow(int64_t generation) HEDDLE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  int64_t oldest_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Oldest generation that is accepted.
  std::map<int64_t, std::weak_ptr<Group>> groups_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
