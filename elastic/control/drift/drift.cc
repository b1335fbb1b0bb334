#include "elastic/control/drift/drift.h"

#include <algorithm>
#include <vector>

namespace heddle::elastic {
namespace {

// Of ascending values, at least one.
double NoiseOf(const std::vector<double>& sorted) {
  if (sorted.size() < 3) {
    return 0;
  }
  return (sorted[sorted.size() - 2] - sorted[1]) / 2 / sorted[sorted.size() / 2];
}

}  // namespace

double Drift::SlowdownOf(const std::string& worker) const {
  const auto found = gauges_.find(worker);
  return found == gauges_.end() ? 1 : found->second.slowdown;
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
  while (static_cast<int>(gauge.ratios.size()) > policy.windows) {
    gauge.ratios.pop_front();
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
    if (!generations.IsMember(name) ||
        static_cast<int>(gauge.ratios.size()) < policy.windows_over) {
      continue;
    }
    int slower = 0;
    int faster = 0;
    for (const double ratio : gauge.ratios) {
      slower += ratio > policy.threshold * gauge.planned_slowdown ? 1 : 0;
      faster += ratio < gauge.planned_slowdown / policy.threshold ? 1 : 0;
    }
    if (slower >= policy.windows_over || faster >= policy.windows_over) {
      std::vector<double> sorted(gauge.ratios.begin(), gauge.ratios.end());
      std::sort(sorted.begin(), sorted.end());
      gauge.slowdown = sorted[sorted.size() / 2];
      noise_ = std::max(noise_, NoiseOf(sorted));
      gauge.ratios.clear();
      out.Log("drift", {{"worker", name}, {"slowdown", gauge.slowdown}});
      noticed_.insert(name);
    }
  }
  return !noticed_.empty();
}

void Drift::BeginGeneration() {
  for (auto& [name, gauge] : gauges_) {
    gauge.planned_slowdown = gauge.slowdown;
    gauge.ratios.clear();
    gauge.window = 0;
  }
}

}  // namespace heddle::elastic
