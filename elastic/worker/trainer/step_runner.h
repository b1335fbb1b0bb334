/// \file
/// Runs the steps of a generation, and the saves, snapshots and validations that are due after
/// them.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"
#include "elastic/worker/trainer/snapshots.h"

namespace heddle::elastic {

/// Runs steps. Thread: "any" where said; the rest from one thread.
class StepRunner {
 public:
  StepRunner(JobContext& context, Snapshots& snapshots)
      : context_(context),
        options_(context.options),
        snapshots_(snapshots) {}

  /// Runs steps to a stop, the last step or an error. Posts StepApplied, Saved and Validated;
  /// returns how the run ended. On return no save or snapshot reads the state any more.
  RunEnded Run(Generation& generation, const RunSteps& run);
  /// Asks for a stop in the next vote of the generation's run. Thread: any.
  void RequestStop(int64_t generation) { stop_generation_.store(generation); }
  /// Makes runs of earlier generations end with kAborted before their next step, also if no other
  /// worker takes part that could abort them. Thread: any.
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
