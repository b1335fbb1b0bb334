/// \file
/// What a worker does for a job: holds its share of the state, runs the Programs of its generation,
/// moves state when the plan changes. Its calls are the actions of elastic/member/member.h;
/// elastic/worker/worker.h is the process around it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/generation_builder.h"
#include "elastic/worker/trainer/job_context.h"
#include "elastic/worker/trainer/lowered_plans.h"
#include "elastic/worker/trainer/snapshots.h"
#include "elastic/worker/trainer/step_runner.h"

namespace heddle::elastic {

/// Thread: "any" where said; the rest from one thread.
class Trainer {
 public:
  /// Errors: those of JobContext::Create.
  static Result<std::unique_ptr<Trainer>> Create(TrainerOptions options);

  /// Measures this worker's operators and its link; anew at every start. JSON of planning's
  /// WorkerMeasurement.
  Result<std::string> MeasureProfile();
  /// data::Dataset::fingerprint() of the job's data here. Thread: any.
  uint64_t data_fingerprint() const { return context_->dataset->fingerprint(); }
  /// Lowers the plan for this worker and keeps it for Move; returns the program's hash. Thread:
  /// any.
  Result<uint64_t> Lower(int64_t generation, const std::string& plan_json) {
    return plans_.Lower(generation, plan_json);
  }
  void Settle(const SettleStep& settle);
  StateMoved Move(const MoveState& move);
  void Adopt(int64_t generation);
  void Discard(int64_t generation);
  /// Trains; posts StepApplied, Saved and Validated; returns how it ended. A checkpoint's copy of
  /// the state never outlasts it: whoever settles, moves or frees state finds it unread.
  RunEnded Run(const RunSteps& run);
  /// The state at rest, unless its save was begun while it ran; posts Saved, now or later. Nobody
  /// reads the state any more when this returns.
  void Save(const SaveState& save);
  /// Thread: any.
  void RequestStop(int64_t generation) { runner_.RequestStop(generation); }
  /// Run of a generation below ends after the step that it is in, and no save keeps it waiting.
  /// Thread: any.
  void Fence(int64_t generation) {
    runner_.Fence(generation);
    context_->writer->Fence(generation);
  }
  /// What was done here, counted: device instructions, bytes moved, phases of lowering. Thread:
  /// any.
  int64_t progress() const {
    return context_->device->clock().works() + context_->progress.count();
  }
  /// It waits for other workers. Thread: any.
  bool waits() const { return context_->progress.waits(); }
  const MoveProgress& move() const { return context_->move; }
  /// Thread: any.
  void SetEmulation(const job::Emulation& emulation) { context_->SetEmulation(emulation); }

 private:
  explicit Trainer(std::unique_ptr<JobContext> context);

  const std::unique_ptr<JobContext> context_;  // These outlive the generations below.
  LoweredPlans plans_;
  Snapshots snapshots_;
  GenerationBuilder builder_;
  StepRunner runner_;
  std::unique_ptr<Generation> held_;
  std::unique_ptr<Generation> moved_;
  Status settle_status_;
};

}  // namespace heddle::elastic
