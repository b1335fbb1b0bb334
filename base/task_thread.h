/// \file
/// A thread that runs posted tasks in order, for work of a loop that must not block.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "base/thread.h"

namespace heddle {

/// A thread with a queue of tasks. Thread: any.
class TaskThread {
 public:
  /// Whether tasks that have not begun when it closes are dropped or run.
  enum class AtEnd : uint8_t { kDrop, kFinish };

  /// `name`: the thread's name (base/thread.h).
  explicit TaskThread(const std::string& name, AtEnd at_end = AtEnd::kDrop);
  /// Closes and waits for the thread: for the running task and, with kFinish, all posted tasks.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void Post(std::function<void()> task);
  /// Begins the end of the thread; with kDrop no further task begins. Does not wait. The destructor
  /// calls it, too.
  void Close();

 private:
  void Run();

  const AtEnd at_end_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ HEDDLE_GUARDED_BY(mutex_);
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;  // Declared last, because it uses the other members.
};

}  // namespace heddle
