#include "metrics/registry.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace heddle::metrics {
namespace {

/// Returns the metric with these labels, and makes it at the first call.
template <typename Metric, typename... A>
Metric& FindOrMake(std::map<Labels, std::unique_ptr<Metric>>& metrics,
                   const Labels& labels,
                   const A&... arguments) {
  std::unique_ptr<Metric>& slot = metrics[labels];
  if (slot == nullptr) {
    slot = std::make_unique<Metric>(arguments...);
  }
  return *slot;
}

}  // namespace

void Counter::Add(double amount) {
  HEDDLE_CHECK(amount >= 0, "a counter never falls; got {}", amount);
  double seen = value_.load();
  while (!value_.compare_exchange_weak(seen, seen + amount)) {
  }
}

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(bounds_.size() + 1, 0) {
  HEDDLE_CHECK(
      std::adjacent_find(bounds_.begin(), bounds_.end(), std::greater_equal<>()) == bounds_.end(),
      "bounds ascend strictly");
}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const MutexLock lock(mutex_);
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

Histogram::Snapshot Histogram::Read() const {
  Snapshot snapshot{.bounds = bounds_, .cumulative = {}, .sum = 0};
  const MutexLock lock(mutex_);
  snapshot.sum = sum_;
  uint64_t below = 0;
  for (const uint64_t count : counts_) {
    below += count;
    snapshot.cumulative.push_back(below);
  }
  return snapshot;
}

Registry::FamilyEntry& Registry::FamilyOf(const std::string& name,
                                          const std::string& help,
                                          Kind kind) {
  const auto [position, made] = families_.try_emplace(name);
  FamilyEntry& entry = position->second;
  if (made) {
    entry.help = help;
    entry.kind = kind;
  }
  HEDDLE_CHECK(entry.kind == kind, "metric {} was made as another kind", name);
  return entry;
}

Counter& Registry::GetCounter(const std::string& name,
                              const std::string& help,
                              const Labels& labels) {
  const MutexLock lock(mutex_);
  return FindOrMake(FamilyOf(name, help, Kind::kCounter).counters, labels);
}

Gauge& Registry::GetGauge(const std::string& name, const std::string& help, const Labels& labels) {
  const MutexLock lock(mutex_);
  return FindOrMake(FamilyOf(name, help, Kind::kGauge).gauges, labels);
}

Histogram& Registry::GetHistogram(const std::string& name,
                                  const std::string& help,
                                  const std::vector<double>& bounds,
                                  const Labels& labels) {
  const MutexLock lock(mutex_);
  return FindOrMake(FamilyOf(name, help, Kind::kHistogram).histograms, labels, bounds);
}

std::vector<Registry::Family> Registry::Collect() const {
  std::vector<Family> families;
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : families_) {
    Family family{.name = name, .help = entry.help, .kind = entry.kind, .samples = {}};
    for (const auto& [labels, counter] : entry.counters) {
      family.samples.push_back({.labels = labels, .value = counter->Value(), .histogram = {}});
    }
    for (const auto& [labels, gauge] : entry.gauges) {
      if (gauge->exists()) {
        family.samples.push_back({.labels = labels, .value = gauge->Value(), .histogram = {}});
      }
    }
    for (const auto& [labels, histogram] : entry.histograms) {
      family.samples.push_back({.labels = labels, .value = 0, .histogram = histogram->Read()});
    }
    if (!family.samples.empty()) {
      families.push_back(std::move(family));
    }
  }
  return families;
}

}  // namespace heddle::metrics
