/// \file
/// A thread that does what is posted to it, in order: work beside a loop that must not wait.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "base/thread.h"

namespace heddle {

/// Thread: any.
class TaskThread {
 public:
  /// What to do at the end with tasks that have not begun.
  enum class AtEnd : uint8_t { kDrop, kFinish };

  /// `name` as in base/thread.h.
  explicit TaskThread(const std::string& name, AtEnd at_end = AtEnd::kDrop);
  /// Waits for the task that runs.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void Post(std::function<void()> task);
  /// The end begins: with kDrop no further task does. Waits for nothing; the destructor does it,
  /// too.
  void Close();

 private:
  void Run();

  const AtEnd at_end_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ HEDDLE_GUARDED_BY(mutex_);
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;  // Last: it uses what stands above.
};

}  // namespace heddle
