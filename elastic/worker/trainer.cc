#include "elastic/worker/trainer.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "elastic/service/job_policy.h"
#include "elastic/service/measurement.h"
#include "elastic/worker/link_probe.h"
#include "elastic/worker/profile_cache.h"
#include "engine/graph/operator.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/state.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/profiler.h"

namespace heddle::elastic {
namespace {

// A worker's compute seconds of one step by its profile.
double PredictedBusy(const graph::Graph& graph,
                     const program::Program& program,
                     const program::WorkerProfile& profile) {
  double seconds = 0;
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.code == program::Code::kRun) {
      seconds += profile.Seconds(graph, graph.node(instruction.node));
    } else if (instruction.code == program::Code::kFold) {
      seconds += profile.ByteSeconds(
          "fold", program.slots[static_cast<size_t>(instruction.inputs[0])].type.bytes());
    } else if (instruction.code == program::Code::kUpdate) {
      seconds += profile.ByteSeconds(
          "update", program.slots[static_cast<size_t>(instruction.inputs[0])].type.bytes());
    }
  }
  return seconds;
}

// Step k consumes the samples after those of k - 1 steps: a pure function, whatever happened in
// between.
int64_t FirstSample(const job::JobConfig& job, int64_t step) {
  return (step - 1) * job.batch.global;
}

}  // namespace

Trainer::Trainer(TrainerOptions options)
    : options_(std::move(options)),
      clock_(options_.emulation.speed),
      replicas_(*options_.registry),
      memory_bytes_(options_.emulation.memory_bytes) {}

Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::Create(TrainerOptions options) {
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(options)));
  HEDDLE_RETURN_IF_ERROR(trainer->Build());
  return trainer;
}

Status Trainer::Build() {
  const job::JobConfig& job = options_.job;
  runtime::SetThreads(static_cast<int>(job.threads));
  HEDDLE_ASSIGN_OR_RETURN(graph_, graph::BuildTrainingGraph(job.model, job::GraphOptions(job)));
  HEDDLE_ASSIGN_OR_RETURN(evaluation_graph_,
                          graph::BuildEvaluationGraph(job.model, job::GraphOptions(job)));
  HEDDLE_ASSIGN_OR_RETURN(dataset_, data::Dataset::Open(job::DatasetOptions(job)));
  HEDDLE_ASSIGN_OR_RETURN(
      writer_, checkpoint::Writer::Create(
                   {.root = job.checkpoint.RootIn(options_.output_folder), .name = options_.worker},
                   *options_.registry));
  if (job.checkpoint.replicas.every > 0) {
    HEDDLE_ASSIGN_OR_RETURN(replica_writer_,
                            checkpoint::Writer::Create({.root = "", .name = options_.worker},
                                                       ReplicaFigures(*options_.registry)));
  }
  options_.endpoint->SetLinkRate(options_.emulation.link_bytes_per_second);
  return Status::Ok();
}

void Trainer::SetEmulation(const job::Emulation& emulation) {
  clock_.SetSpeed(emulation.speed);
  memory_bytes_.store(emulation.memory_bytes);
  options_.endpoint->SetLinkRate(emulation.link_bytes_per_second);
}

Result<std::string> Trainer::MeasureProfile() {
  WorkerMeasurement measurement;
  HEDDLE_ASSIGN_OR_RETURN(
      measurement.profile,
      CachedProfile(CacheFolder(),
                    {.graph = &graph_, .speed = clock_.speed(), .threads = options_.job.threads},
                    [&] { return runtime::MeasureProfile(graph_, clock_, {}); }));
  measurement.profile.worker = options_.worker;
  measurement.profile.memory_bytes = memory_bytes_.load();
  HEDDLE_ASSIGN_OR_RETURN(measurement.link,
                          ProbeOwnLink(*options_.endpoint, options_.endpoint_options));
  MutexLock lock(mutex_);
  profile_ = measurement.profile;
  link_ = measurement.link;
  return MeasurementToJson(measurement);
}

Result<uint64_t> Trainer::Lower(int64_t generation, const std::string& plan_json) {
  auto lowered = std::make_shared<Lowered>();
  HEDDLE_ASSIGN_OR_RETURN(lowered->plan, program::PlanFromJson(plan_json));
  const auto found = std::ranges::find(lowered->plan.workers, options_.worker);
  uint64_t hash = 0;
  if (found != lowered->plan.workers.end()) {
    lowered->rank = static_cast<int>(found - lowered->plan.workers.begin());
    HEDDLE_ASSIGN_OR_RETURN(lowered->training,
                            program::Lower(graph_, lowered->plan, lowered->rank));
    HEDDLE_ASSIGN_OR_RETURN(lowered->evaluation,
                            program::Lower(evaluation_graph_, lowered->plan, lowered->rank));
    hash = program::ProgramHash(lowered->training, graph_);
  }
  MutexLock lock(mutex_);
  if (!profile_.seconds.empty()) {
    lowered->predicted_busy_seconds = PredictedBusy(graph_, lowered->training, profile_);
  }
  lowered_[generation] = std::move(lowered);
  return hash;
}

std::shared_ptr<const Trainer::Lowered> Trainer::FindLowered(int64_t generation) {
  MutexLock lock(mutex_);
  const auto found = lowered_.find(generation);
  return found == lowered_.end() ? nullptr : found->second;
}

void Trainer::Settle(const SettleStep& settle) {
  if (held_ == nullptr || held_->trainer == nullptr || held_->applied_step >= settle.step) {
    return;
  }
  if (held_->trainer->pending_step() != settle.step) {
    settle_status_ = InternalError(
        "step {} is to be settled, but its gradients are not complete here", settle.step);
    return;
  }
  held_->trainer->Apply(settle.step, settle.norm,
                        job::LearningRate(options_.job.optimizer, settle.step, options_.job.steps));
  held_->applied_step = settle.step;
}

void Trainer::Adopt(int64_t generation) {
  if (moved_ == nullptr || moved_->number != generation) {
    return;
  }
  held_ = std::move(moved_);
  replicas_.DropAfter(held_->applied_step);
  if (held_->snapshot) {
    replicas_.MarkWhole(*held_->snapshot);
  }
  TellReplicas();
  MutexLock lock(mutex_);
  lowered_.erase(lowered_.begin(), lowered_.lower_bound(generation));
}

void Trainer::Discard(int64_t generation) {
  if (moved_ != nullptr && moved_->number == generation) {
    moved_.reset();
  }
}

runtime::ExecutorOptions Trainer::ExecutorFor(Generation& generation, bool training) {
  const int64_t cap = memory_bytes_.load();
  const int64_t state = program::StateBytes(graph_, generation.lowered->training);
  const bool validates = !training && dataset_->validation_windows() > 0;
  return {
      .graph = training ? &graph_ : &evaluation_graph_,
      .program = training ? &generation.lowered->training : &generation.lowered->evaluation,
      .state = generation.state.get(),
      .group = generation.group.get(),
      .shared = generation.shared.get(),
      .clock = &clock_,
      .read_sample =
          [this, validates](int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) {
            return validates ? dataset_->ReadValidation(sample % dataset_->validation_windows(),
                                                        tokens, targets)
                             : dataset_->ReadSample(sample, tokens, targets);
          },
      .before_update =
          [this, state = generation.state.get()](graph::ParameterId parameter) {
            for (const program::StateRole role : program::kStateRoles) {
              writer_->BeforeChange(state->BytesOf(parameter, role));
              if (replica_writer_ != nullptr) {
                replica_writer_->BeforeChange(state->BytesOf(parameter, role));
              }
            }
          },
      .seed = options_.job.seed,
      .microbatches = static_cast<int>(options_.job.batch.microbatches()),
      .memory_cap_bytes = cap > 0 ? std::max<int64_t>(cap - state, 1) : 0};
}

void Trainer::MakeExecutors(Generation& generation) {
  generation.trainer = std::make_unique<runtime::Executor>(ExecutorFor(generation, true));
  generation.evaluator = std::make_unique<runtime::Executor>(ExecutorFor(generation, false));
}

RunEnded Trainer::Run(const RunSteps& run) {
  RunEnded ended = RunUntilEnd(run);
  writer_->FinishCopy();
  if (replica_writer_ != nullptr) {
    replica_writer_->FinishCopy();
  }
  return ended;
}

RunEnded Trainer::RunUntilEnd(const RunSteps& run) {
  RunEnded ended;
  ended.generation = run.generation;
  ended.applied_step = run.applied_step;
  if (held_ == nullptr || held_->number != run.generation || held_->group == nullptr) {
    ended.status =
        InternalError("generation {} is to run, but its state is not held", run.generation);
    return ended;
  }
  Generation& generation = *held_;
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
    DueAfterStep(generation, SaveDue(generation),
                 ValidationDue(options_.policy, generation.applied_step));
  }
  if (generation.applied_step >= options_.job.steps) {
    // What was saved at the last step is reported before the worker says that it has finished.
    writer_->Wait(After(options_.policy.stop_timeout))
        .status()
        .IgnoreError("Saved has told the outcome");
    ended.how = RunEnded::How::kFinished;
  }
  return ended;
}

// Runs one step; ended.how becomes kStopped when somebody was told to stop.
Status Trainer::RunStep(Generation& generation, int64_t step, RunEnded& ended) {
  const job::JobConfig& job = options_.job;
  const Time begun = Now();
  runtime::Executor& executor = *generation.trainer;
  HEDDLE_RETURN_IF_ERROR(executor.ComputeGradients(step, FirstSample(job, step)));
  const Replicator* const replicator = generation.replicator.get();
  const runtime::VoteFlags flags{.stop = stop_generation_.load() == generation.number,
                                 .saving = writer_->busy(),
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

void Trainer::Report(const wire::StepRecord& record, const Generation& generation) {
  metrics::Registry& registry = *options_.registry;
  registry.GetGauge("heddle_step", "Last step applied.").Set(static_cast<double>(record.step()));
  registry.GetGauge("heddle_generation", "Generation that trains.")
      .Set(static_cast<double>(generation.number));
  registry.GetGauge("heddle_loss", "Training loss of the last step.").Set(record.loss());
  registry.GetGauge("heddle_gradient_norm", "Global gradient norm of the last step.")
      .Set(record.gradient_norm());
  registry
      .GetHistogram("heddle_step_seconds", "Time of a step.",
                    {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100})
      .Observe(record.seconds());
  registry.GetCounter("heddle_tokens_total", "Tokens trained on by the whole job.")
      .Add(static_cast<double>(record.tokens()));
  registry.GetGauge("heddle_tokens_per_second", "Throughput of the whole job.")
      .Set(static_cast<double>(record.tokens()) / std::max(record.seconds(), 1e-9));
  registry.GetGauge("heddle_predicted_step_seconds", "Step time that the plan predicts.")
      .Set(generation.lowered->plan.predicted_step_seconds);
  const auto figures = generation.trainer->figures();
  registry
      .GetGauge("heddle_busy_seconds", "Compute of this worker in the last step, waits excluded.")
      .Set(figures.busy_seconds);
  registry.GetGauge("heddle_predicted_busy_seconds", "The same by this worker's profile.")
      .Set(generation.lowered->predicted_busy_seconds);
  registry
      .GetGauge("heddle_waiting_seconds",
                "Waits of this worker for messages and reductions in the last step.")
      .Set(figures.waiting_seconds);
  options_.post(StepApplied{.record = record,
                            .busy_seconds = figures.busy_seconds,
                            .predicted_busy_seconds = generation.lowered->predicted_busy_seconds});
}

void Trainer::DueAfterStep(Generation& generation, bool save, bool validate) {
  if (save) {
    Save(generation);
    if (!options_.job.checkpoint.background) {
      AwaitSaves(generation);
    }
  }
  Replicate(generation);
  if (validate && dataset_->validation_windows() > 0) {
    const Status status = Validate(generation);
    if (!status.ok()) {
      LogWarning("validation after step {} was cut: {}", generation.applied_step, status.message());
    }
  }
}

Status Trainer::Validate(Generation& generation) {
  double loss = 0;
  for (int64_t batch = 0; batch < options_.job.validation.batches; ++batch) {
    // Step 0 of the evaluation program: nothing in it depends on the step.
    HEDDLE_RETURN_IF_ERROR(generation.evaluator->ComputeGradients(
        generation.applied_step, batch * options_.job.batch.global));
    HEDDLE_ASSIGN_OR_RETURN(const runtime::VoteOutcome outcome,
                            generation.evaluator->Vote(generation.applied_step));
    loss += outcome.loss;
  }
  options_.post(Validated{.step = generation.applied_step,
                          .loss = loss / static_cast<double>(options_.job.validation.batches)});
  return Status::Ok();
}

}  // namespace heddle::elastic
