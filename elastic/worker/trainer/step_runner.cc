#include "elastic/worker/trainer/step_runner.h"

#include <optional>
#include <vector>

#include "base/log.h"
#include "base/system/process_memory.h"
#include "elastic/worker/trainer/certificate.h"
#include "elastic/worker/trainer/saves.h"

namespace heddle::elastic {
namespace {

// The first sample of a step: step k consumes the samples after those of k - 1 steps, whatever
// failures there were.
int64_t FirstSample(const job::JobConfig& job, int64_t step) {
  return (step - 1) * job.batch.global;
}

}  // namespace

RunEnded StepRunner::Run(Generation& generation, const RunSteps& run) {
  // What measurements and the former plan took is of no use to this one.
  ForgetResidentPeak();
  context_.device->ForgetPeak();
  RunEnded ended = RunUntilEnd(generation, run);
  context_.writer->FinishCopy();
  if (context_.replica_writer != nullptr) {
    context_.replica_writer->FinishCopy();
  }
  return ended;
}

RunEnded StepRunner::RunUntilEnd(Generation& generation, const RunSteps& run) {
  RunEnded ended;
  ended.generation = run.generation;
  ended.applied_step = run.applied_step;
  DueAfterStep(generation, run.save, run.validate);
  bool stop = false;
  while (!stop && generation.applied_step < options_.job.steps) {
    ended.status = RunStep(generation, generation.applied_step + 1, ended);
    ended.applied_step = generation.applied_step;
    if (!ended.status.ok()) {
      ended.voted = generation.trainer->pending_step() == generation.applied_step + 1;
      return ended;
    }
    stop = ended.how == RunEnded::How::kStopped;
    ended.status = TellDigestsIfDue(context_, generation);
    if (!ended.status.ok()) {
      return ended;
    }
    DueAfterStep(generation, SaveIsDue(context_, generation),
                 ValidationDue(options_.policy, generation.applied_step));
  }
  if (generation.applied_step >= options_.job.steps) {
    // Waits for the save of the last step, which is reported before the end of the run.
    const Progress::Wait waits(context_.progress);
    context_.writer->Wait(After(options_.policy.stop_timeout))
        .status()
        .IgnoreError("Saved has told the outcome");
    ended.how = RunEnded::How::kFinished;
  }
  return ended;
}

Status StepRunner::CheckFence(const Generation& generation) const {
  return generation.number < fence_.load()
             ? AbortedError("generation {} is over", generation.number)
             : Status::Ok();
}

// Runs one step; ended.how becomes kStopped if a worker has voted to stop.
Status StepRunner::RunStep(Generation& generation, int64_t step, RunEnded& ended) {
  HEDDLE_RETURN_IF_ERROR(CheckFence(generation));
  const job::JobConfig& job = options_.job;
  const Time begun = Now();
  runtime::Executor& executor = *generation.trainer;
  HEDDLE_RETURN_IF_ERROR(executor.ComputeGradients(step, FirstSample(job, step)));
  const Replicator* const replicator = generation.replicator.get();
  const runtime::VoteFlags flags{.stop = stop_generation_.load() == generation.number,
                                 .saving = context_.writer->busy(),
                                 .replicating = replicator != nullptr && replicator->exchanging(),
                                 .unreplicated = replicator != nullptr && replicator->failed()};
  HEDDLE_ASSIGN_OR_RETURN(const runtime::VoteOutcome outcome, executor.Vote(step, flags));
  if (outcome.finite) {
    executor.Apply(step, outcome.gradient_norm, job::LearningRate(job.optimizer, step, job.steps));
  }
  generation.applied_step = step;
  generation.flags = outcome.flags;
  wire::StepRecord record;
  record.set_step(step);
  record.set_generation(generation.number);
  record.set_loss(outcome.loss);
  record.set_gradient_norm(outcome.gradient_norm);
  record.set_tokens(job.batch.tokens());
  record.set_seconds(Seconds(Now() - begun));
  record.set_first_sample(FirstSample(job, step));
  record.set_samples(job.batch.global);
  record.set_not_finite(!outcome.finite);
  Report(record, generation);
  ended.how = outcome.flags.stop ? RunEnded::How::kStopped : RunEnded::How::kFailed;
  return Status::Ok();
}

void StepRunner::Report(const wire::StepRecord& record, const Generation& generation) {
  const auto figures = generation.trainer->figures();
  const Lowered& lowered = *generation.lowered;
  const auto own = [&lowered](const std::vector<int64_t>& predicted) {
    return predicted.empty() ? std::nullopt
                             : std::optional(predicted[static_cast<size_t>(lowered.rank)]);
  };
  context_.figures.steps.Show({.step = record.step(),
                               .generation = generation.number,
                               .loss = record.loss(),
                               .gradient_norm = record.gradient_norm(),
                               .tokens = record.tokens(),
                               .seconds = record.seconds(),
                               .predicted_seconds = lowered.plan.predicted_step_seconds,
                               .busy_seconds = figures.busy_seconds,
                               .predicted_busy_seconds = lowered.predicted_busy_seconds,
                               .waiting_seconds = figures.waiting_seconds,
                               .memory_bytes = lowered.state_bytes + figures.peak_bytes,
                               .predicted_memory_bytes = own(lowered.plan.predicted_peak_bytes),
                               .process_peak_bytes = ResidentPeak(),
                               .predicted_process_bytes = own(lowered.plan.predicted_process_bytes),
                               .device_memory_bytes = context_.device->memory_in_use(),
                               .device_memory_peak_bytes = context_.device->memory_peak(),
                               .device_sums = figures.device_sums});
  options_.post(StepApplied{.record = record,
                            .busy_seconds = figures.busy_seconds,
                            .predicted_busy_seconds = lowered.predicted_busy_seconds});
}

void StepRunner::DueAfterStep(Generation& generation, bool save, bool validate) {
  if (save) {
    Save(context_, generation);
  }
  snapshots_.TakeIfDue(generation);
  if (validate && context_.dataset->validation_windows() > 0) {
    const Status status = Validate(generation);
    if (!status.ok()) {
      LogWarning("validation after step {} was cut: {}", generation.applied_step, status.message());
    }
  }
}

Status StepRunner::Validate(Generation& generation) {
  double loss = 0;
  for (int64_t batch = 0; batch < options_.job.validation.batches; ++batch) {
    HEDDLE_RETURN_IF_ERROR(CheckFence(generation));
    // The step does not matter: nothing in the evaluation program depends on it.
    HEDDLE_RETURN_IF_ERROR(generation.evaluator->ComputeGradients(
        generation.applied_step, batch * options_.job.batch.global));
    HEDDLE_ASSIGN_OR_RETURN(const runtime::VoteOutcome outcome,
                            generation.evaluator->Vote(generation.applied_step));
    loss += outcome.loss;
  }
  options_.post(Validated{.generation = generation.number,
                          .step = generation.applied_step,
                          .loss = loss / static_cast<double>(options_.job.validation.batches)});
  return Status::Ok();
}

}  // namespace heddle::elastic
