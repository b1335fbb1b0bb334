/// \file
/// What a worker shows of its training to Prometheus.
#pragma once

#include <cstdint>
#include <optional>

#include "metrics/registry.h"

namespace heddle::elastic {

/// Of one step, and of the generation that made it.
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
};

/// Thread: any.
class StepFigures {
 public:
  explicit StepFigures(metrics::Registry& registry);
  void Show(const StepShown& shown);
  /// The worker makes no steps now: what it has shown of the last one would pass for the job's.
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
  metrics::Histogram& seconds_;
  metrics::Counter& tokens_;
};

/// Whether what is shown in `registry` is of a step of the generation that the worker is part of.
bool ShowsSteps(metrics::Registry& registry);

/// Counters and histograms are there from its making on, at 0. Thread: any.
struct TrainerFigures {
  explicit TrainerFigures(metrics::Registry& registry);

  StepFigures steps;
  metrics::Counter& skipped_checkpoints;
  metrics::Counter& skipped_snapshots;
  metrics::Histogram& digest_seconds;
};

}  // namespace heddle::elastic
