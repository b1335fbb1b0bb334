/// \file
/// Runs the steps of a generation, and what is due after them: saves, snapshots, validation.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"
#include "elastic/worker/trainer/snapshots.h"

namespace heddle::elastic {

/// Thread: "any" where said; the rest from one thread.
class StepRunner {
 public:
  StepRunner(JobContext& context, Snapshots& snapshots)
      : context_(context),
        options_(context.options),
        snapshots_(snapshots) {}

  /// Posts StepApplied, Saved and Validated; returns how it ended. A checkpoint's copy of the state
  /// never outlasts it.
  RunEnded Run(Generation& generation, const RunSteps& run);
  /// Thread: any.
  void RequestStop(int64_t generation) { stop_generation_.store(generation); }
  /// Run of a generation below ends with kAborted before its next step, also where no other worker
  /// takes part that could abort it. Thread: any.
  void Fence(int64_t generation) { fence_.store(generation); }

 private:
  RunEnded RunUntilEnd(Generation& generation, const RunSteps& run);
  Status CheckFence(const Generation& generation) const;
  Status RunStep(Generation& generation, int64_t step, RunEnded& ended);
  void DueAfterStep(Generation& generation, bool save, bool validate);
  Status Validate(Generation& generation);
  void Report(const wire::StepRecord& record, const Generation& generation);

  JobContext& context_;
  const TrainerOptions& options_;
  Snapshots& snapshots_;
  std::atomic<int64_t> stop_generation_ = 0;
  std::atomic<int64_t> fence_ = 0;
};

}  // namespace heddle::elastic
