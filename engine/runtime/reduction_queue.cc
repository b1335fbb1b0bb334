#include "engine/runtime/reduction_queue.h"

#include <utility>

#include "base/clock.h"

namespace heddle::runtime {
namespace {

// Bound of one sleep: the loops below look again, so a missed wake-up costs this much and no more.
constexpr Duration kSlice = std::chrono::milliseconds(100);

}  // namespace

ReductionQueue::ReductionQueue() : thread_("reductions", [this] { Run(); }) {}

ReductionQueue::~ReductionQueue() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    tasks_.clear();
  }
  changed_.NotifyAll();
  thread_.Join();
}

void ReductionQueue::Push(std::function<Status()> task) {
  {
    MutexLock lock(mutex_);
    if (!status_.ok()) {
      return;
    }
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

Status ReductionQueue::Drain() {
  MutexLock lock(mutex_);
  while (busy_ || !tasks_.empty()) {
    changed_.WaitUntil(mutex_, After(kSlice));
  }
  return std::exchange(status_, Status::Ok());
}

void ReductionQueue::Run() {
  PreferLongSlices();
  while (true) {
    std::function<Status()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !closing_) {
        changed_.WaitUntil(mutex_, After(kSlice));
      }
      if (closing_) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
    }
    Status status = task();
    {
      MutexLock lock(mutex_);
      busy_ = false;
      if (!status.ok() && status_.ok()) {
        status_ = std::move(status);
        tasks_.clear();
      }
    }
    changed_.NotifyAll();
  }
}

}  // namespace heddle::runtime
