/// \file
/// A thread for work that takes long and whose older orders are moot once a newer one is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/task_thread.h"

namespace heddle::elastic {

/// Thread: any.
class NewestTask {
 public:
  /// `name` as in base/thread.h.
  explicit NewestTask(const std::string& name) : thread_(name) {}

  /// Begun when the thread is free, unless another one has been posted by then.
  void Post(std::function<void()> task) {
    thread_.Post([this, task = std::move(task), number = ++newest_] {
      if (number == newest_.load()) {
        task();
      }
    });
  }

 private:
  std::atomic<int64_t> newest_ = 0;
  TaskThread thread_;  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
