#include "elastic/member/drift_window.h"

#include <utility>

namespace heddle::elastic {

void DriftWindow::BeginGeneration() {
  last_.number = 0;
  open_ = {};
}

void DriftWindow::Count(const StepApplied& event) {
  ++open_.steps;
  open_.seconds += event.record.seconds();
  open_.busy += event.busy_seconds;
  open_.predicted += event.predicted_busy_seconds;
  if (open_.steps >= steps_ && open_.seconds >= Seconds(time_)) {
    open_.number = last_.number + 1;
    last_ = std::exchange(open_, {});
  }
}

}  // namespace heddle::elastic
