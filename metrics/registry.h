/// \file
/// Counters, gauges and histograms of one process, free of any exporter.
/// metrics/exposition/exposer.h serves them to Prometheus. Names follow Prometheus:
/// heddle_<module>_<thing>_<unit>, base units, `_total` for counters; labels of low cardinality
/// (never a step or a path).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace heddle::metrics {

using Labels = std::map<std::string, std::string>;

/// Thread: any.
class Counter {
 public:
  void Add(double amount = 1);  ///< amount >= 0.
  double Value() const { return value_.load(); }

 private:
  std::atomic<double> value_ = 0;
};

/// A value that may not exist: nothing is exposed before the first Set, nor after Clear. Thread:
/// any.
class Gauge {
 public:
  void Set(double value) {
    value_.store(value);
    exists_.store(true);
  }
  /// What it told of is no more: of a generation that ended, of a job.
  void Clear() { exists_.store(false); }
  /// The last value set; 0 before any.
  double Value() const { return value_.load(); }
  bool exists() const { return exists_.load(); }

 private:
  std::atomic<double> value_ = 0;
  std::atomic<bool> exists_ = false;
};

/// Thread: any.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void Observe(double value);
  struct Snapshot {
    std::vector<double> bounds;        ///< Ascending upper bounds, without +Inf.
    std::vector<uint64_t> cumulative;  ///< One a bound, then the total.
    double sum = 0;
  };
  Snapshot Read() const;

 private:
  const std::vector<double> bounds_;
  mutable Mutex mutex_;
  std::vector<uint64_t> counts_ HEDDLE_GUARDED_BY(mutex_);
  double sum_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

/// Owns a process' metrics. A metric asked for twice is the same object and lives as long as the
/// registry. A name keeps its first kind and help; asking for it as another kind is a broken
/// invariant. Thread: any.
class Registry {
 public:
  Counter& GetCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& GetGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& GetHistogram(const std::string& name,
                          const std::string& help,
                          const std::vector<double>& bounds,
                          const Labels& labels = {});

  enum class Kind : uint8_t { kCounter, kGauge, kHistogram };
  struct Sample {
    Labels labels;
    double value = 0;               ///< Counter or gauge.
    Histogram::Snapshot histogram;  ///< Histogram.
  };
  struct Family {
    std::string name;
    std::string help;
    Kind kind = Kind::kCounter;
    std::vector<Sample> samples;
  };
  /// Everything that has a value, sorted by name.
  std::vector<Family> Collect() const;

 private:
  struct FamilyEntry {
    std::string help;
    Kind kind = Kind::kCounter;
    std::map<Labels, std::unique_ptr<Counter>> counters;
    std::map<Labels, std::unique_ptr<Gauge>> gauges;
    std::map<Labels, std::unique_ptr<Histogram>> histograms;
  };
  FamilyEntry& FamilyOf(const std::string& name, const std::string& help, Kind kind)
      HEDDLE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, FamilyEntry> families_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::metrics
