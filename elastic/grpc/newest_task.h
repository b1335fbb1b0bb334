/// \file
/// A thread for work that takes long and whose older orders are moot once a newer one is there.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/task_thread.h"

namespace heddle::elastic {

/// Thread: any; the end of its life comes after all calls.
class NewestTask {
 public:
  /// What ends early when the stop of its token is requested.
  using Task = std::function<void(const std::stop_token&)>;

  /// `name` as in base/thread.h.
  explicit NewestTask(const std::string& name) : thread_(name) {}
  /// Requests the stop of what runs and waits for it; what has not begun is left out.
  ~NewestTask() {
    const MutexLock lock(mutex_);
    newest_.request_stop();
  }
  NewestTask(const NewestTask&) = delete;
  NewestTask& operator=(const NewestTask&) = delete;

  /// Requests the stop of what runs. Begun when the thread is free, unless another one has been
  /// posted by then.
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
