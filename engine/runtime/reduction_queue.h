/// \file
/// Runs gradient reductions in program order on a thread of its own, beside the backward pass.
#pragma once

#include <cstdint>
#include <functional>

#include "base/mutex.h"
#include "base/status.h"
#include "base/task_thread.h"

namespace heddle::runtime {

/// Thread: one caller at a time.
class ReductionQueue {
 public:
  ReductionQueue();
  ReductionQueue(const ReductionQueue&) = delete;
  ReductionQueue& operator=(const ReductionQueue&) = delete;

  /// Runs `task` after those before it. After a failure, tasks are dropped until Drain.
  void Push(std::function<Status()> task);
  /// Waits until everything pushed has ended; the first error. Tasks bound their own waits.
  Status Drain();

 private:
  void RunOne(const std::function<Status()>& task);

  Mutex mutex_;
  CondVar changed_;
  int64_t left_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Pushed and not yet ended or dropped.
  Status status_ HEDDLE_GUARDED_BY(mutex_);
  TaskThread thread_;  // Last: its tasks use what stands above.
};

}  // namespace heddle::runtime
