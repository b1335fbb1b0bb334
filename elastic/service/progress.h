/// \file
/// What a user of `train` sees: one line that is kept current on a terminal, one a few seconds
/// elsewhere, and a line for everything that is not a step.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "elastic/control/log_event.h"

namespace heddle::elastic {

/// Thread: any.
class Progress {
 public:
  Progress(int64_t total_steps, bool shown);
  void Note(const LogEvent& event);
  /// How many the job has now.
  void SetWorkers(int64_t workers);
  void Say(const std::string& line);
  /// Ends the line that is kept current.
  void Finish();

 private:
  void Print(const std::string& line, bool kept) HEDDLE_REQUIRES(mutex_);
  std::string StepLine() const HEDDLE_REQUIRES(mutex_);

  const bool shown_;
  const bool terminal_;
  Mutex mutex_;
  int64_t total_steps_ HEDDLE_GUARDED_BY(mutex_);  ///< 0: not known.
  bool line_open_ HEDDLE_GUARDED_BY(mutex_) = false;
  Time printed_ HEDDLE_GUARDED_BY(mutex_){};
  int64_t step_ HEDDLE_GUARDED_BY(mutex_) = 0;
  double loss_ HEDDLE_GUARDED_BY(mutex_) = 0;
  double seconds_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Of a step, smoothed.
  double tokens_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t generation_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t workers_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::elastic
