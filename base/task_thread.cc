#include "base/task_thread.h"

#include <utility>

#include "base/clock.h"

namespace heddle {
namespace {

// Bound of one sleep: the loop looks again, so that a missed wake-up costs this much and no more.
constexpr Duration kSlice = std::chrono::milliseconds(200);

}  // namespace

TaskThread::TaskThread(const std::string& name, AtEnd at_end)
    : at_end_(at_end),
      thread_(name, [this] { Run(); }) {}

TaskThread::~TaskThread() {
  Close();
  thread_.Join();
}

void TaskThread::Close() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.NotifyAll();
}

void TaskThread::Post(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

void TaskThread::Run() {
  while (true) {
    std::function<void()> task;
    {
      const MutexLock lock(mutex_);
      while (tasks_.empty() && !closing_) {
        changed_.WaitUntil(mutex_, After(kSlice));
      }
      if (closing_ && (tasks_.empty() || at_end_ == AtEnd::kDrop)) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace heddle
