#include "elastic/control/steps/step_times.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace heddle::elastic {

void StepTimes::BeginGeneration() {
  excluded_ = 0;
  seconds_.clear();
}

void StepTimes::Count(int64_t generation, double seconds) {
  if (std::exchange(generation_, generation) != generation) {
    BeginGeneration();
  }
  if (!(seconds > 0) || !std::isfinite(seconds)) {
    return;
  }
  if (excluded_ < kExcluded) {
    ++excluded_;
    return;
  }
  seconds_.push_back(seconds);
  if (counted() > kNewest) {
    seconds_.pop_front();
  }
}

std::optional<double> StepTimes::Median() const {
  if (counted() < kLeast) {
    return std::nullopt;
  }
  std::vector<double> values(seconds_.begin(), seconds_.end());
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace heddle::elastic
