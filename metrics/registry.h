/// \file
/// The counters, gauges and histograms of one process, independent of any exporter.
/// metrics/exposition/exposer.h serves them to Prometheus. Names follow Prometheus:
/// heddle_<module>_<thing>_<unit>, base units, `_total` for counters. Labels have low cardinality:
/// never a step or a path.
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

/// A sum that only rises. Thread: any.
class Counter {
 public:
  void Add(double amount = 1);  ///< Precondition: amount >= 0.
  double Value() const { return value_.load(); }

 private:
  std::atomic<double> value_ = 0;
};

/// A value that may be absent: it is not exposed before the first Set and after Clear. Thread: any.
class Gauge {
 public:
  void Set(double value) {
    value_.store(value);
    exists_.store(true);
  }
  /// Makes the value absent, for example when the job that it belongs to has ended.
  void Clear() { exists_.store(false); }
  /// The last value set; 0 before the first Set.
  double Value() const { return value_.load(); }
  bool exists() const { return exists_.load(); }

 private:
  std::atomic<double> value_ = 0;
  std::atomic<bool> exists_ = false;
};

/// Counts of observed values by bucket. Thread: any.
class Histogram {
 public:
  /// `bounds`: upper bounds of the buckets, strictly ascending, without +Inf.
  explicit Histogram(std::vector<double> bounds);
  void Observe(double value);
  struct Snapshot {
    std::vector<double> bounds;        ///< Ascending upper bounds, without +Inf.
    std::vector<uint64_t> cumulative;  ///< By bound: count of values up to it; then the total.
    double sum = 0;
  };
  Snapshot Read() const;

 private:
  const std::vector<double> bounds_;
  mutable Mutex mutex_;
  std::vector<uint64_t> counts_ HEDDLE_GUARDED_BY(mutex_);
  double sum_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

/// Owns the metrics of a process. The same name and labels always give the same object, which lives
/// as long as the registry. A name keeps its first kind and help; asking for it as another kind is
/// a broken invariant. Thread: any.
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
    double value = 0;               ///< Value of a counter or gauge.
    Histogram::Snapshot histogram;  ///< Value of a histogram.
  };
  struct Family {
    std::string name;
    std::string help;
    Kind kind = Kind::kCounter;
    std::vector<Sample> samples;
  };
  /// Returns all metrics that have a value, sorted by name.
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
