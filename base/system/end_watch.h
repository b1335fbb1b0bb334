/// \file
/// Ends a process in time after a signal, whatever it is doing.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace heddle {

/// Ends the process with exit code 1 and a line in the log if it has not ended by itself within a
/// bound after a signal. A write to storage that hangs cannot be cancelled, nor can the computation
/// of a step, and their threads cannot be joined. Durable state is consistent at every moment, as
/// after a kill. Thread: any.
class EndWatch {
 public:
  /// Bound after a second signal.
  static constexpr Duration kSecondSignal = std::chrono::milliseconds(500);

  /// `asked` returns whether the signal has come; it is called from a thread of the watch. `bound`:
  /// time after the signal.
  EndWatch(std::function<bool()> asked, Duration bound);
  ~EndWatch();  ///< Stops watching, because the process is ending by itself.
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// Ends the process after `bound` from now on, with or without a signal. Of several bounds the
  /// earliest end applies.
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
