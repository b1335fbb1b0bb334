/// \file
/// Progress on standard error: the line of the current step, which is updated in place on a
/// terminal and printed every few seconds elsewhere, and a line for each other event.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "elastic/control/log_event.h"

namespace heddle::elastic {

/// Prints the progress of a job. Thread: any.
class Progress {
 public:
  /// `total_steps`: the job's steps; 0: not known yet. Prints nothing unless `shown`.
  Progress(int64_t total_steps, bool shown);
  /// Prints an event of the run's log, if it is one that is shown.
  void Note(const LogEvent& event);
  /// Sets the number of workers that the step's line shows.
  void SetWorkers(int64_t workers);
  /// Prints a line.
  void Say(const std::string& line);
  /// Ends the step's line, so that other output follows on a new one.
  void Finish();

 private:
  void Print(const std::string& line, bool kept) HEDDLE_REQUIRES(mutex_);
  std::string StepLine() const HEDDLE_REQUIRES(mutex_);

  const bool shown_;
  const bool terminal_;
  Mutex mutex_;
  int64_t total_steps_ HEDDLE_GUARDED_BY(mutex_);     ///< 0: not known.
  bool line_open_ HEDDLE_GUARDED_BY(mutex_) = false;  ///< The step's line has no newline yet.
  Time printed_ HEDDLE_GUARDED_BY(mutex_){};
  int64_t step_ HEDDLE_GUARDED_BY(mutex_) = 0;
  double loss_ HEDDLE_GUARDED_BY(mutex_) = 0;
  double seconds_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Smoothed time of a step.
  double tokens_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t generation_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t workers_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::elastic
