#include "engine/runtime/exchange/task_queue.h"

#include <utility>

#include "base/clock.h"

namespace heddle::runtime {
namespace {

// Bound of one sleep: the loop below looks again, so a missed wake-up costs this much and no more.
constexpr Duration kSlice = std::chrono::milliseconds(100);

}  // namespace

void TaskQueue::Push(std::function<Status()> task) {
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) {
      return;
    }
    ++left_;
  }
  thread_.Post([this, task = std::move(task)] { RunOne(task); });
}

Status TaskQueue::Drain() {
  const MutexLock lock(mutex_);
  while (left_ > 0) {
    changed_.WaitUntil(mutex_, After(kSlice));
  }
  return std::exchange(status_, Status::Ok());
}

void TaskQueue::RunOne(const std::function<Status()>& task) {
  bool dropped = false;
  {
    const MutexLock lock(mutex_);
    dropped = !status_.ok();
  }
  Status status = dropped ? Status::Ok() : task();
  {
    const MutexLock lock(mutex_);
    --left_;
    if (!status.ok() && status_.ok()) {
      status_ = std::move(status);
    }
  }
  changed_.NotifyAll();
}

}  // namespace heddle::runtime
