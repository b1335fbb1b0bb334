#include "elastic/worker/trainer/trainer.h"

#include <utility>

#include "elastic/planning/measurement.h"
#include "elastic/worker/measure/measure_worker.h"
#include "elastic/worker/trainer/certificate.h"
#include "elastic/worker/trainer/saves.h"

namespace heddle::elastic {

Trainer::Trainer(std::unique_ptr<JobContext> context)
    : context_(std::move(context)),
      plans_(*context_),
      snapshots_(*context_),
      builder_(*context_, plans_, snapshots_),
      runner_(*context_, snapshots_) {}

Result<std::unique_ptr<Trainer>> Trainer::Create(TrainerOptions options) {
  HEDDLE_ASSIGN_OR_RETURN(auto context, JobContext::Create(std::move(options)));
  return std::unique_ptr<Trainer>(new Trainer(std::move(context)));
}

Result<std::string> Trainer::MeasureProfile() {
  JobContext& context = *context_;
  const TrainerOptions& options = context.options;
  HEDDLE_ASSIGN_OR_RETURN(const program::ProfiledWork work,
                          WorkToMeasure(options.job, context.graph));
  const MeasuredAs as{
      .worker = options.worker,
      .work = &work,
      .emulation = {.speed = context.device->clock().speed(),
                    .link_bytes_per_second = options.emulation.link_bytes_per_second},
      .device = context.device.get(),
      .threads = options.job.threads};
  KeptFiles kept(CacheFolder());
  HEDDLE_ASSIGN_OR_RETURN(const WorkerMeasurement measurement,
                          MeasureWorker(as, kept, options.endpoint_options, context.progress));
  plans_.SetProfile(measurement.profile);
  builder_.SetLink(measurement.link.link);
  return MeasurementToJson(measurement);
}

void Trainer::Settle(const SettleStep& settle) {
  if (held_ == nullptr || held_->trainer == nullptr || held_->applied_step >= settle.step) {
    return;
  }
  if (settle.skip) {
    if (held_->applied_step + 1 != settle.step) {
      settle_status_ = InternalError("step {} is to be left out after step {}", settle.step,
                                     held_->applied_step);
      return;
    }
    held_->applied_step = settle.step;
    return;
  }
  if (held_->trainer->pending_step() != settle.step) {
    settle_status_ = InternalError(
        "step {} is to be settled, but its gradients are not complete here", settle.step);
    return;
  }
  const job::JobConfig& job = context_->options.job;
  held_->trainer->Apply(settle.step, settle.norm,
                        job::LearningRate(job.optimizer, settle.step, job.steps));
  held_->applied_step = settle.step;
}

StateMoved Trainer::Move(const MoveState& move) {
  const Time begun = Now();
  StateMoved moved;
  moved.generation = move.start.generation();
  moved.status = std::exchange(settle_status_, Status::Ok());
  if (moved.status.ok()) {
    Result<std::unique_ptr<Generation>> next = builder_.Build(move, held_.get(), moved);
    moved.status = next.status();
    if (next.ok()) {
      moved_ = *std::move(next);
      if (moved_->lowered->rank >= 0) {
        Result<wire::Certificate> certificate = CertificateOf(*context_, *moved_);
        moved.status = certificate.status();
        if (certificate.ok()) {
          moved.certificate = *std::move(certificate);
        }
      }
    }
  }
  context_->move.Begin(0);
  moved.seconds = Seconds(Now() - begun);
  return moved;
}

void Trainer::Adopt(int64_t generation) {
  if (moved_ == nullptr || moved_->number != generation) {
    return;
  }
  held_ = std::move(moved_);
  if (held_->lowered->rank < 0) {
    context_->figures.steps.Clear();
  }
  snapshots_.Adopt(*held_);
  plans_.ForgetBelow(generation);
}

void Trainer::Discard(int64_t generation) {
  if (moved_ != nullptr && moved_->number == generation) {
    moved_.reset();
  }
}

void Trainer::Save(const SaveState& save) {
  if (held_ != nullptr && held_->number == save.generation && held_->applied_step == save.step) {
    return SaveAtRest(*context_, *held_);
  }
  Saved failed;
  failed.part.set_step(save.step);
  failed.part.set_generation(save.generation);
  failed.part.set_error("INTERNAL: the state is not held here");
  context_->options.post(failed);
}

RunEnded Trainer::Run(const RunSteps& run) {
  if (held_ == nullptr || held_->number != run.generation || held_->group == nullptr) {
    RunEnded ended;
    ended.generation = run.generation;
    ended.applied_step = run.applied_step;
    ended.status =
        InternalError("generation {} is to run, but its state is not held", run.generation);
    return ended;
  }
  return runner_.Run(*held_, run);
}

}  // namespace heddle::elastic
