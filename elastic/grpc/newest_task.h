/// \file
/// A thread for long work of which only the newest task matters.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/task_thread.h"

namespace heddle::elastic {

/// Runs tasks one at a time; a newer task cancels those before it. Thread: any; destroyed after all
/// calls have returned.
class NewestTask {
 public:
  /// A task; it returns early when a stop is requested by its token.
  using Task = std::function<void(const std::stop_token&)>;

  /// Starts the thread; `name` as in base/thread.h.
  explicit NewestTask(const std::string& name) : thread_(name) {}
  /// Requests the stop of the running task and waits for it; a task that has not begun is dropped.
  ~NewestTask() {
    const MutexLock lock(mutex_);
    newest_.request_stop();
  }
  NewestTask(const NewestTask&) = delete;
  NewestTask& operator=(const NewestTask&) = delete;

  /// Requests the stop of the running task and queues `task`, which is dropped if another one is
  /// posted before it begins. Does not wait.
  void Post(Task task) {
    const MutexLock lock(mutex_);
    newest_.request_stop();
    newest_ = std::stop_source();
    thread_.Post([task = std::move(task), stop = newest_.get_token()] {
      if (!stop.stop_requested()) {
        task(stop);
      }
    });
  }

 private:
  Mutex mutex_;
  std::stop_source newest_ HEDDLE_GUARDED_BY(mutex_);
  TaskThread thread_;  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
