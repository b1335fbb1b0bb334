#include "elastic/control/steps/step_times.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace heddle::elastic {
namespace {

// Constants of the normal distribution: its quartiles are this many standard deviations apart, and
// the standard error of a median is this many times that of the mean.
constexpr double kQuartiles = 1.349;
constexpr double kMedianError = 1.2533;

}  // namespace

double StepLevel::Uncertainty() const {
  return steps == 0 ? 0 : 2 * kMedianError * noise / std::sqrt(static_cast<double>(steps));
}

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
  if (counted() > kKept) {
    seconds_.pop_front();
  }
}

std::optional<StepLevel> StepTimes::Newest(int most) const {
  const int count = std::min(most, counted());
  if (count < kLeast) {
    return std::nullopt;
  }
  std::vector<double> sorted(seconds_.end() - count, seconds_.end());
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](int quarter) {
    return sorted[static_cast<size_t>(quarter * (count - 1) / 4)];
  };
  const double median = at(2);
  return StepLevel{
      .seconds = median, .noise = (at(3) - at(1)) / kQuartiles / median, .steps = count};
}

}  // namespace heddle::elastic
