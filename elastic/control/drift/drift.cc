#include "elastic/control/drift/drift.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace heddle::elastic {
namespace {

// How many of the newest windows give the estimate: fewer than are needed to notice a change
// (DriftPolicy::windows_over).
constexpr size_t kNewest = 3;

// The estimated slowdown: the lowest of the newest ratios. There is at least one.
double EstimateOf(const std::vector<double>& ratios) {
  const auto newest = static_cast<std::ptrdiff_t>(std::min(kNewest, ratios.size()));
  return *std::min_element(ratios.end() - newest, ratios.end());
}

// Half the range without the lowest and the highest value, over the median; 0 for fewer than three
// values.
double NoiseOf(std::vector<double> sorted) {
  if (sorted.size() < 3) {
    return 0;
  }
  std::sort(sorted.begin(), sorted.end());
  return (sorted[sorted.size() - 2] - sorted[1]) / 2 / sorted[sorted.size() / 2];
}

// The last `count` ratios, or all if there are fewer.
std::vector<double> LastOf(const std::vector<double>& ratios, int count) {
  const auto last = std::min<std::ptrdiff_t>(count, std::ssize(ratios));
  return {ratios.end() - last, ratios.end()};
}

// The ratios of the last windows that are beyond the threshold; empty if they are no lasting
// change.
// `excess_of`: the factor by which a ratio is beyond what the plan counts on, on one side.
template <typename Excess>
std::vector<double> Changed(const std::vector<double>& ratios,
                            const DriftPolicy& policy,
                            Excess excess_of) {
  const auto count = [&](const std::vector<double>& among, double limit) {
    return std::ranges::count_if(among, [&](double ratio) { return excess_of(ratio) > limit; });
  };
  std::vector<double> last = LastOf(ratios, policy.windows);
  const double limit = policy.threshold;
  const bool is_large = count(last, limit * limit) >= policy.windows_over;
  const bool lasts = count(last, limit) >= policy.windows_over &&
                     count(ratios, std::sqrt(limit)) >= policy.windows_lasting;
  if (!is_large && !lasts) {
    return {};
  }
  std::erase_if(last, [&](double ratio) { return excess_of(ratio) <= limit; });
  return last;
}

}  // namespace

double Drift::SlowdownOf(const std::string& worker) const {
  const auto found = gauges_.find(worker);
  return found == gauges_.end() ? 1 : found->second.slowdown;
}

std::optional<double> Drift::MeasuredOf(const std::string& worker) const {
  const auto found = gauges_.find(worker);
  return found == gauges_.end() || found->second.ratios.empty()
             ? std::nullopt
             : std::optional(EstimateOf(found->second.ratios));
}

void Drift::Count(const std::string& worker,
                  const wire::Heartbeat& message,
                  const Generations& generations,
                  const DriftPolicy& policy) {
  const auto& held = generations.held();
  if (!held || message.generation() != held->number) {
    return;
  }
  Gauge& gauge = gauges_[worker];
  if (message.window() <= gauge.window) {
    return;
  }
  gauge.window = message.window();
  if (message.window() <= policy.windows_excluded || message.predicted_busy_seconds() <= 0 ||
      message.busy_seconds() <= 0) {
    return;
  }
  gauge.ratios.push_back(message.busy_seconds() / message.predicted_busy_seconds());
  if (static_cast<int>(gauge.ratios.size()) > policy.windows_lasting) {
    gauge.ratios.erase(gauge.ratios.begin());
  }
}

bool Drift::Notice(const Generations& generations,
                   const DriftPolicy& policy,
                   Time now,
                   Outbox& out) {
  noticed_.clear();
  noise_ = 0;
  if (!pause_.IsOver(now)) {
    return false;
  }
  for (auto& [name, gauge] : gauges_) {
    if (!generations.IsMember(name)) {
      continue;
    }
    const double planned = gauge.planned_slowdown;
    std::vector<double> changed =
        Changed(gauge.ratios, policy, [&](double ratio) { return ratio / planned; });
    if (changed.empty()) {
      changed = Changed(gauge.ratios, policy, [&](double ratio) { return planned / ratio; });
    }
    if (!changed.empty()) {
      gauge.slowdown = EstimateOf(changed);
      noise_ = std::max(noise_, NoiseOf(LastOf(gauge.ratios, policy.windows)));
      gauge.ratios.clear();
      out.Log("drift", {{"worker", name}, {"slowdown", gauge.slowdown}});
      noticed_.insert(name);
    }
  }
  return !noticed_.empty();
}

bool Drift::AreSteady(const Generations& generations, const DriftPolicy& policy) const {
  return std::ranges::all_of(gauges_, [&](const auto& gauge) {
    const auto& [name, measured] = gauge;
    if (!generations.IsMember(name) || measured.ratios.empty()) {
      return true;
    }
    const double ratio = measured.ratios.back() / measured.planned_slowdown;
    return ratio <= policy.threshold && ratio >= 1 / policy.threshold;
  });
}

void Drift::BeginGeneration() {
  for (auto& [name, gauge] : gauges_) {
    gauge.planned_slowdown = gauge.slowdown;
    gauge.window = 0;
  }
}

}  // namespace heddle::elastic
