/// \file
/// An end that was asked for by a signal comes in time, whatever the process is doing.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace heddle {

/// Ends the process with a line in the log when it has not ended by itself so long after a signal,
/// with exit code 1: a write to storage that hangs cannot be called off, nor can a step that
/// computes, and a thread that is in one cannot be joined. What is durable is so at every moment,
/// as after a kill. Thread: any.
class EndWatch {
 public:
  /// After a second signal: whoever sends one wants no more than the end.
  static constexpr Duration kSecondSignal = std::chrono::milliseconds(500);

  /// `asked`: whether the signal has come; called from a thread of its own.
  EndWatch(std::function<bool()> asked, Duration bound);
  ~EndWatch();  ///< The process ends by itself.
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// No more than so long from now on, signal or not; of several calls the earliest end counts.
  void EndWithin(Duration bound, int exit_code = 1) HEDDLE_EXCLUDES(mutex_);

 private:
  void Run() HEDDLE_EXCLUDES(mutex_);
  void EndBy(Time time, int exit_code) HEDDLE_REQUIRES(mutex_);

  const std::function<bool()> asked_;
  const Duration bound_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ HEDDLE_GUARDED_BY(mutex_) = false;
  Time end_by_ HEDDLE_GUARDED_BY(mutex_) = Time::max();
  int exit_code_ HEDDLE_GUARDED_BY(mutex_) = 1;
  Thread thread_;  // Last: it uses what stands above.
};

}  // namespace heddle
