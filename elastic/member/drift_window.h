/// \file
/// Busy time of this worker, measured and predicted, and wall-clock time of all workers, summed
/// over windows of steps.
#pragma once

#include <cstdint>

#include "elastic/member/member.h"

namespace heddle::elastic {

/// The windows of a generation. Thread: one caller at a time. A copy is an independent machine.
class DriftWindow {
 public:
  /// Sums over the steps of a complete window.
  struct Sums {
    /// From 1 on within a generation; 0: this generation has no complete window yet.
    int64_t number = 0;
    int64_t steps = 0;
    double seconds = 0;    ///< Wall-clock time of the steps.
    double busy = 0;       ///< Seconds for which this worker computed.
    double predicted = 0;  ///< Seconds for which it should have, by its profile.
  };

  /// A window is complete after `steps` steps and after `time`, whichever is later.
  DriftWindow(int64_t steps, Duration time) : steps_(steps), time_(time) {}

  /// Discards the open window, and numbers the next one 1.
  void BeginGeneration();
  /// Adds a step to the open window.
  void Count(const StepApplied& event);
  /// The newest complete window. Its sums are those of an earlier generation while its number is 0.
  const Sums& last() const { return last_; }

 private:
  int64_t steps_;
  Duration time_;
  Sums last_;
  Sums open_;
};

}  // namespace heddle::elastic
