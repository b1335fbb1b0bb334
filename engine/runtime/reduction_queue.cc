#include "engine/runtime/reduction_queue.h"

#include <utility>

#include "base/clock.h"
#include "base/thread.h"

namespace heddle::runtime {
namespace {

// Bound of one sleep: the loop below looks again, so a missed wake-up costs this much and no more.
constexpr Duration kSlice = std::chrono::milliseconds(100);

}  // namespace

ReductionQueue::ReductionQueue() : thread_("reductions") {
  thread_.Post(PreferLongSlices);
}

void ReductionQueue::Push(std::function<Status()> task) {
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) {
      return;
    }
    ++left_;
  }
  thread_.Post([this, task = std::move(task)] { RunOne(task); });
}

Status ReductionQueue::Drain() {
  const MutexLock lock(mutex_);
  while (left_ > 0) {
    changed_.WaitUntil(mutex_, After(kSlice));
  }
  return std::exchange(status_, Status::Ok());
}

void ReductionQueue::RunOne(const std::function<Status()>& task) {
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
