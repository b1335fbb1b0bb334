/// \file
/// A thread that does what is posted to it, in order: planning and commits beside the event loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace heddle::elastic {

/// What to do at the end with work that has not begun.
enum class AtEnd : uint8_t { kDrop, kFinish };

/// Thread: any.
class HelperThread {
 public:
  HelperThread(const std::string& name, AtEnd at_end)
      : at_end_(at_end),
        thread_(name, [this] { Run(); }) {}
  ~HelperThread() {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
      wake_.NotifyOne();
    }
    thread_.Join();
  }
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void Post(std::function<void()> work) {
    const MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
    wake_.NotifyOne();
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> work;
      {
        const MutexLock lock(mutex_);
        while (queue_.empty() && !stopped_) {
          wake_.WaitUntil(mutex_, After(std::chrono::seconds(1)));
        }
        if (stopped_ && (queue_.empty() || at_end_ == AtEnd::kDrop)) {
          return;
        }
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  const AtEnd at_end_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> queue_ HEDDLE_GUARDED_BY(mutex_);
  bool stopped_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace heddle::elastic
