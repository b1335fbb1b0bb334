/// \file
/// The outcome of a change: the coordinator's loop gives it once the change is stored, and a call
/// waits for it.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace heddle::elastic {

/// An outcome to wait for. Thread: any.
class StoredAnswer {
 public:
  /// Sets the outcome and wakes the waiting calls.
  void Give(const Status& status) {
    const MutexLock lock(mutex_);
    answer_ = status;
    changed_.NotifyAll();
  }
  /// Waits for the outcome; nullopt if there is none by `until`.
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
