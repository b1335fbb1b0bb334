/// \file
/// Busy time of this worker, measured against predicted, and the time of all, in windows of some
/// steps and some time.
#pragma once

#include <cstdint>

#include "elastic/member/member.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class DriftWindow {
 public:
  /// A window is complete after so many steps and so much time.
  DriftWindow(int64_t steps, Duration time) : steps_(steps), time_(time) {}

  void BeginGeneration();
  void Count(const StepApplied& event);
  /// The last window of the generation that is complete.
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
  int64_t complete_windows_ = 0;  ///< Of this generation.
  Sums complete_;                 ///< Of an earlier generation, if none is complete in this one.
  Sums open_;
};

}  // namespace heddle::elastic
