/// \file
/// Measured and predicted busy time of this worker, and the time of steps, summed over windows of
/// steps.
#pragma once

#include <cstdint>

#include "elastic/member/member.h"

namespace heddle::elastic {

/// The windows of a generation. Thread: one caller at a time. A copy is an independent machine.
class DriftWindow {
 public:
  /// A window is complete once it has at least `steps` steps that took at least `time`.
  DriftWindow(int64_t steps, Duration time) : steps_(steps), time_(time) {}

  /// Begins the first window of a generation.
  void BeginGeneration();
  /// Adds a step to the open window.
  void Count(const StepApplied& event);
  /// Writes the number of complete windows of the generation, and the sums of the last one.
  void Describe(wire::Heartbeat& message) const;

 private:
  struct Sums {
    int64_t steps = 0;
    double seconds = 0;
    double busy = 0;
    double predicted = 0;
  };

  int64_t steps_;
  Duration time_;
  int64_t complete_windows_ = 0;  ///< Number of complete windows of this generation.
  Sums complete_;  ///< The last complete window, of an earlier generation if this one has none.
  Sums open_;      ///< The window that is not complete.
};

}  // namespace heddle::elastic
