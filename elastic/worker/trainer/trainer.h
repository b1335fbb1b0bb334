/// \file
/// The trainer of a worker: it holds the worker's share of the state, runs the Programs of its
/// generation, and moves state when the plan changes. Its calls are the actions of
/// elastic/member/member.h; elastic/worker/worker.h is the process around it.
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

/// A worker's trainer. Thread: "any" where said; the rest from one thread.
class Trainer {
 public:
  /// Makes a trainer that holds no state. Errors: those of JobContext::Create.
  static Result<std::unique_ptr<Trainer>> Create(TrainerOptions options);

  /// Measures this worker's operators and its link, or takes what its machine keeps (KeptFiles).
  /// Returns planning's WorkerMeasurement as JSON. Errors: those of MeasureWorker.
  Result<std::string> MeasureProfile();
  /// What the worker computes on. Thread: any.
  runtime::Arithmetic arithmetic() const { return context_->device->arithmetic(); }
  /// The fingerprint of the job's data on this machine (data::Dataset::fingerprint). Thread: any.
  uint64_t data_fingerprint() const { return context_->dataset->fingerprint(); }
  /// Lowers the plan for this worker and keeps it for Move; returns the hash of its Program
  /// (LoweredPlans::Lower). Thread: any.
  Result<uint64_t> Lower(int64_t generation, const std::string& plan_json) {
    return plans_.Lower(generation, plan_json);
  }
  /// Applies or skips the step after the held state's; no effect if it is applied already. An error
  /// makes the next Move fail.
  void Settle(const SettleStep& settle);
  /// Builds the generation of `move` beside the held one; errors are in the returned event.
  StateMoved Move(const MoveState& move);
  /// Replaces the held generation by the moved one, if that is `generation`.
  void Adopt(int64_t generation);
  /// Drops the moved generation, if that is `generation`.
  void Discard(int64_t generation);
  /// Trains to a stop, the last step or an error. Posts StepApplied, Saved and Validated; returns
  /// how the run ended. On return no save or snapshot reads the state any more, so that it can be
  /// settled, moved or freed.
  RunEnded Run(const RunSteps& run);
  /// Saves the held state between runs, unless its save was begun during the run. Posts Saved, now
  /// or later. On return no save reads the state any more.
  void Save(const SaveState& save);
  /// Asks for a stop in the next vote of the generation's run. Thread: any.
  void RequestStop(int64_t generation) { runner_.RequestStop(generation); }
  /// Makes runs of earlier generations end before their next step, and their saves end without
  /// delay. Thread: any.
  void Fence(int64_t generation) {
    runner_.Fence(generation);
    context_->writer->Fence(generation);
  }
  /// A counter that rises with each device instruction, moved piece and phase of lowering, so that
  /// a hang can be told from slow work. Thread: any.
  int64_t progress() const {
    return context_->device->clock().works() + context_->progress.count();
  }
  /// True while the trainer waits for other workers or for storage. Thread: any.
  bool waits() const { return context_->progress.waits(); }
  /// The progress of a Move. Thread: any.
  const MoveProgress& move() const { return context_->move; }
  /// Changes the emulated speed, memory and link rate. Thread: any.
  void SetEmulation(const job::Emulation& emulation) { context_->SetEmulation(emulation); }

 private:
  explicit Trainer(std::unique_ptr<JobContext> context);

  const std::unique_ptr<JobContext> context_;  // These outlive the generations below.
  LoweredPlans plans_;
  Snapshots snapshots_;
  GenerationBuilder builder_;
  StepRunner runner_;
  std::unique_ptr<Generation> held_;   ///< Null: no state is held.
  std::unique_ptr<Generation> moved_;  ///< Null: none awaits Adopt or Discard.
  Status settle_status_;               ///< Error of Settle, for the next Move.
};

}  // namespace heddle::elastic
