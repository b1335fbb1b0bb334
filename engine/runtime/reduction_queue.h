/// \file
/// Runs gradient reductions in program order on a thread of its own, beside the backward pass.
#pragma once

#include <deque>
#include <functional>

#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"

namespace heddle::runtime {

/// Thread: one caller at a time.
class ReductionQueue {
 public:
  ReductionQueue();
  ~ReductionQueue();
  ReductionQueue(const ReductionQueue&) = delete;
  ReductionQueue& operator=(const ReductionQueue&) = delete;

  /// Runs `task` after those before it. After a failure, tasks are dropped until Drain.
  void Push(std::function<Status()> task);
  /// Waits until everything pushed has ended; the first error. Tasks bound their own waits.
  Status Drain();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<Status()>> tasks_ HEDDLE_GUARDED_BY(mutex_);
  bool busy_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  Status status_ HEDDLE_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace heddle::runtime
