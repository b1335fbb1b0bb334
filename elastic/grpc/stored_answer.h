/// \file
/// What a call waits for that the coordinator's loop gives once the change is stored.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace heddle::elastic {

/// Thread-safe.
class StoredAnswer {
 public:
  void Give(const Status& status) {
    const MutexLock lock(mutex_);
    answer_ = status;
    changed_.NotifyAll();
  }
  /// None: there is none by then.
  std::optional<Status> Wait(Deadline until) {
    const MutexLock lock(mutex_);
    while (!answer_ && Now() < until) {
      changed_.WaitUntil(mutex_, until);
    }
    return answer_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Status> answer_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::elastic
