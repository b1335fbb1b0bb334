#include "elastic/control/drift/drift.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace heddle::elastic {
namespace {

// Fewer than are needed to notice a change (DriftPolicy::windows_over).
constexpr size_t kNewest = 3;

// The lowest of the newest. Of at least one.
double EstimateOf(const std::vector<double>& ratios) {
  const auto newest = static_cast<std::ptrdiff_t>(std::min(kNewest, ratios.size()));
  return *std::min_element(ratios.end() - newest, ratios.end());
}

// Of at least one value.
double NoiseOf(std::vector<double> sorted) {
  if (sorted.size() < 3) {
    return 0;
  }
  std::sort(sorted.begin(), sorted.end());
  return (sorted[sorted.size() - 2] - sorted[1]) / 2 / sorted[sorted.size() / 2];
}

// Those that are beyond the threshold; empty where they are too few for a change.
template <typename IsBeyond>
std::vector<double> Changed(const std::vector<double>& ratios, int least, IsBeyond is_beyond) {
  std::vector<double> beyond;
  std::copy_if(ratios.begin(), ratios.end(), std::back_inserter(beyond), is_beyond);
  return static_cast<int>(beyond.size()) < least ? std::vector<double>() : beyond;
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
  if (static_cast<int>(gauge.ratios.size()) > policy.windows) {
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
    std::vector<double> changed = Changed(gauge.ratios, policy.windows_over, [&](double ratio) {
      return ratio > policy.threshold * planned;
    });
    if (changed.empty()) {
      changed = Changed(gauge.ratios, policy.windows_over,
                        [&](double ratio) { return ratio < planned / policy.threshold; });
    }
    if (!changed.empty()) {
      gauge.slowdown = EstimateOf(changed);
      noise_ = std::max(noise_, NoiseOf(gauge.ratios));
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
