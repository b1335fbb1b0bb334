/// \file
/// Tasks that run in order on a thread of their own, beside the thread that computes: sums of
/// gradients, and sends whose values are not there yet.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "base/task_thread.h"

namespace heddle::runtime {

/// Thread: one caller at a time.
class TaskQueue {
 public:
  /// `name` as in base/thread.h.
  explicit TaskQueue(const std::string& name) : thread_(name) {}
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

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
