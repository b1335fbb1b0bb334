/// \file
/// A queue of tasks, which one thread runs in order while the caller computes: reductions of
/// gradients, and sends whose values are still being computed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "base/task_thread.h"

namespace heddle::runtime {

/// A thread and its queue of tasks. The destructor drops the tasks that have not begun and waits
/// for the one that runs. Thread: one caller at a time.
class TaskQueue {
 public:
  /// Starts the thread, named `name` (base/thread.h).
  explicit TaskQueue(const std::string& name) : thread_(name) {}
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Queues `task`, which has to bound its own waits. After a task failed, tasks are dropped until
  /// Drain.
  void Push(std::function<Status()> task);
  /// Waits until all queued tasks have ended, and returns the first error since the last Drain.
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
