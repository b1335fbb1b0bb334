/// \file
/// A worker's metrics of its training.
#pragma once

#include <cstdint>
#include <optional>

#include "metrics/registry.h"

namespace heddle::elastic {

/// The figures of one step, and of the generation that made it.
struct StepShown {
  int64_t step = 0;
  int64_t generation = 0;
  double loss = 0;
  double gradient_norm = 0;
  int64_t tokens = 0;
  double seconds = 0;
  double predicted_seconds = 0;
  double busy_seconds = 0;
  double predicted_busy_seconds = 0;  ///< 0: unknown.
  double waiting_seconds = 0;
  int64_t memory_bytes = 0;
  std::optional<int64_t> predicted_memory_bytes;
  int64_t process_peak_bytes = 0;
  std::optional<int64_t> predicted_process_bytes;
  int64_t device_memory_bytes = 0;
  int64_t device_memory_peak_bytes = 0;
  int64_t device_sums = 0;
};

/// The metrics of the last step, and those that sum up all steps. Thread: any.
class StepStats {
 public:
  explicit StepStats(metrics::Registry& registry);
  /// Sets the metrics to the figures of a step.
  void Show(const StepShown& shown);
  /// Removes the metrics of the last step, for a worker that makes no steps: they would be taken
  /// for those of the job's current step.
  void Clear();

 private:
  metrics::Gauge& step_;
  metrics::Gauge& generation_;
  metrics::Gauge& loss_;
  metrics::Gauge& gradient_norm_;
  metrics::Gauge& tokens_per_second_;
  metrics::Gauge& predicted_seconds_;
  metrics::Gauge& busy_seconds_;
  metrics::Gauge& predicted_busy_seconds_;
  metrics::Gauge& waiting_seconds_;
  metrics::Gauge& memory_bytes_;
  metrics::Gauge& predicted_memory_bytes_;
  metrics::Gauge& process_peak_bytes_;
  metrics::Gauge& predicted_process_bytes_;
  metrics::Gauge& device_memory_bytes_;
  metrics::Gauge& device_memory_peak_bytes_;
  metrics::Gauge& device_sums_;
  metrics::Histogram& seconds_;
  metrics::Counter& tokens_;
};

/// True if `registry` has the metrics of a step: the worker is part of a generation and has made a
/// step.
bool ShowsSteps(metrics::Registry& registry);

/// All metrics of training. The constructor registers counters and histograms at 0. Thread: any.
struct TrainerStats {
  explicit TrainerStats(metrics::Registry& registry);

  StepStats steps;
  metrics::Counter& skipped_checkpoints;
  metrics::Counter& skipped_snapshots;
  metrics::Histogram& digest_seconds;
};

}  // namespace heddle::elastic
