/// \file
/// The groups of an endpoint by their generation. Generations only go forward.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/group/group.h"

namespace heddle::comm {

/// Thread: any. It keeps no group alive.
class Generations {
 public:
  /// From here on `group`'s generation is the oldest that is served. Errors: kAborted (a newer one
  /// has begun), kFailedPrecondition (connected already).
  Status Begin(const std::shared_ptr<Group>& group) HEDDLE_EXCLUDES(mutex_);
  /// Null: none, or it is gone or has ended.
  std::shared_ptr<Group> Find(int64_t generation) const HEDDLE_EXCLUDES(mutex_);
  /// Those that live and have not ended, the newest generation first.
  std::vector<std::shared_ptr<Group>> Newest() const HEDDLE_EXCLUDES(mutex_);
  bool IsStale(int64_t generation) const HEDDLE_EXCLUDES(mutex_);
  /// Generations below are refused from now on. Returns their groups, for the caller to end.
  std::vector<std::shared_ptr<Group>> FenceBelow(int64_t generation) HEDDLE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  int64_t oldest_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Generations below are refused.
  std::map<int64_t, std::weak_ptr<Group>> groups_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
