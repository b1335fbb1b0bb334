#include "elastic/control/drift/drift.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "elastic/control/drift/median.h"

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

// The second lowest: windows of a step or two vary more, and the lowest of them is too low. The
// change may have come in the oldest, which is left out where that makes it too low. There is at
// least one.
double RoughEstimateOf(std::vector<double> ratios, bool slower) {
  if (slower && ratios.size() > 1) {
    ratios.erase(ratios.begin());
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[std::min<size_t>(1, ratios.size() - 1)];
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

}  // namespace

bool Drift::HasMost(const Series& windows, const DriftPolicy& policy) {
  return std::ssize(windows.ratios) >= policy.windows_lasting;
}

std::optional<Drift::Change> Drift::FindChange(const Gauge& gauge,
                                               const DriftPolicy& policy,
                                               bool slower,
                                               bool great_only) {
  const auto beyond = [&](std::vector<double> among, double limit, double expected) {
    std::erase_if(among, [&](double ratio) {
      return (slower ? ratio / expected : expected / ratio) <= limit;
    });
    return among;
  };
  const double limit = policy.threshold;
  const double fine = std::sqrt(limit);
  const double planned = gauge.planned_slowdown;
  const std::vector<double>& ratios = gauge.windows.ratios;
  const std::vector<double> newest = LastOf(ratios, policy.windows);
  const auto lasting = std::ssize(beyond(ratios, fine, planned));
  const bool lasts = lasting >= policy.windows_lasting;
  if (gauge.rough && HasMost(gauge.windows, policy) && lasting > policy.windows_lasting / 2) {
    return Change{.newest = newest, .slowdown = EstimateOf(beyond(newest, fine, planned))};
  }
  const auto over = std::ssize(beyond(newest, lasts ? limit : limit * limit, planned));
  if (!great_only && over >= policy.windows_over) {
    return Change{.newest = newest, .slowdown = EstimateOf(beyond(newest, limit, planned))};
  }
  // Against the estimate and not the plan: a few steps are enough to notice it, and not to refine
  // it.
  const std::vector<double> great = beyond(gauge.quick.ratios, std::pow(limit, 4), gauge.slowdown);
  if (std::ssize(great) >= (slower ? policy.windows : std::max(1, policy.windows_over - 1))) {
    return Change{.newest = great, .slowdown = RoughEstimateOf(great, slower), .great = true};
  }
  return std::nullopt;
}

double Drift::SlowdownOf(const std::string& worker) const {
  const auto found = gauges_.find(worker);
  return found == gauges_.end() ? 1 : found->second.slowdown;
}

std::optional<double> Drift::MeasuredOf(const std::string& worker) const {
  const auto found = gauges_.find(worker);
  if (found == gauges_.end()) {
    return std::nullopt;
  }
  const std::vector<double>& quick = found->second.quick.ratios;
  const std::vector<double>& ratios = quick.empty() ? found->second.windows.ratios : quick;
  return ratios.empty() ? std::nullopt : std::optional(EstimateOf(ratios));
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
  Count({.number = message.window(),
         .busy_seconds = message.busy_seconds(),
         .predicted_busy_seconds = message.predicted_busy_seconds()},
        policy.windows_lasting, policy, gauge.windows);
  Count({.number = message.quick_window(),
         .busy_seconds = message.quick_busy_seconds(),
         .predicted_busy_seconds = message.quick_predicted_busy_seconds()},
        policy.windows, policy, gauge.quick);
}

void Drift::Count(const Window& window, int kept, const DriftPolicy& policy, Series& series) {
  if (window.number <= series.window) {
    return;
  }
  series.window = window.number;
  if (window.number <= policy.windows_excluded || !(window.predicted_busy_seconds > 0) ||
      !(window.busy_seconds > 0)) {
    return;
  }
  series.ratios.push_back(window.busy_seconds / window.predicted_busy_seconds);
  if (std::ssize(series.ratios) > kept) {
    series.ratios.erase(series.ratios.begin());
  }
}

bool Drift::Notice(const Generations& generations,
                   const DriftPolicy& policy,
                   Time now,
                   Outbox& out) {
  noticed_.clear();
  noise_ = 0;
  great_ = false;
  if (!great_pause_.IsOver(now)) {
    return false;
  }
  const bool great_only = !pause_.IsOver(now);
  for (auto& [name, gauge] : gauges_) {
    if (!generations.IsMember(name)) {
      continue;
    }
    std::optional<Change> change = FindChange(gauge, policy, /*slower=*/true, great_only);
    if (!change) {
      change = FindChange(gauge, policy, /*slower=*/false, great_only);
    }
    if (change) {
      great_ = great_ || change->great;
      gauge.rough = change->great;
      gauge.slowdown = change->slowdown;
      noise_ = std::max(noise_, NoiseOf(change->newest));
      gauge.windows.ratios.clear();
      gauge.quick.ratios.clear();
      out.Log("drift", {{"worker", name}, {"slowdown", gauge.slowdown}});
      noticed_.insert(name);
    } else if (HasMost(gauge.windows, policy)) {
      gauge.rough = false;
    }
  }
  return !noticed_.empty();
}

void Drift::CountOnMeasured(const Generations& generations, const DriftPolicy& policy) {
  for (auto& [name, gauge] : gauges_) {
    if (!generations.IsMember(name) || !HasMost(gauge.windows, policy)) {
      continue;
    }
    const double measured = MedianOf(gauge.windows.ratios);
    const double noise = NoiseOf(gauge.windows.ratios);
    const bool sure = noise < std::sqrt(policy.threshold) - 1;
    if (sure && std::abs(measured / gauge.slowdown - 1) > noise) {
      gauge.slowdown = measured;
    }
  }
}

bool Drift::AreSteady(const Generations& generations, const DriftPolicy& policy) const {
  return std::ranges::all_of(gauges_, [&](const auto& gauge) {
    const auto& [name, measured] = gauge;
    if (!generations.IsMember(name) || measured.windows.ratios.empty()) {
      return true;
    }
    const double ratio = measured.windows.ratios.back() / measured.planned_slowdown;
    return ratio <= policy.threshold && ratio >= 1 / policy.threshold;
  });
}

void Drift::Answered(const DriftPolicy& policy, Time now) {
  pause_.Begin(policy, now);
  if (great_) {
    great_pause_.Begin(policy, now);
  }
}

void Drift::BeginGeneration() {
  for (auto& [name, gauge] : gauges_) {
    gauge.planned_slowdown = gauge.slowdown;
    gauge.windows.window = 0;
    gauge.quick.window = 0;
  }
}

}  // namespace heddle::elastic
