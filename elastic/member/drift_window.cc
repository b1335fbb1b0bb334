#include "elastic/member/drift_window.h"

#include <utility>

namespace heddle::elastic {

void DriftWindow::BeginGeneration() {
  complete_windows_ = 0;
  open_ = {};
}

void DriftWindow::Count(const StepApplied& event) {
  ++open_.steps;
  open_.seconds += event.record.seconds();
  open_.busy += event.busy_seconds;
  open_.predicted += event.predicted_busy_seconds;
  if (open_.steps >= steps_ && open_.seconds >= Seconds(time_)) {
    ++complete_windows_;
    complete_ = std::exchange(open_, {});
  }
}

void DriftWindow::Describe(wire::Heartbeat& message) const {
  message.set_window(complete_windows_);
  message.set_busy_seconds(complete_.busy);
  message.set_predicted_busy_seconds(complete_.predicted);
  message.set_window_steps(complete_.steps);
  message.set_window_seconds(complete_.seconds);
}

}  // namespace heddle::elastic
