#include <algorithm>

#include <fmt/format.h>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {
namespace {

std::string StandingName(wire::Standing standing) {
  switch (standing) {
    case wire::STANDING_IDLE:
      return "standby";
    case wire::STANDING_TRAINING:
      return "training";
    case wire::STANDING_STOPPED:
      return "stopped";
    case wire::STANDING_HALTED:
      return "halted";
    case wire::STANDING_MOVING:
      return "moving";
    case wire::STANDING_READY:
      return "ready";
    case wire::STANDING_FINISHED:
      return "finished";
    default:
      return "unknown";
  }
}

}  // namespace

void Coordinator::State::DescribePhase(Time now, wire::JobStatus& status) const {
  const auto& transition = transitions_.current();
  if (phase_ == JobPhase::kIdle) {
    status.set_phase("idle");
  } else if (phase_ == JobPhase::kDone) {
    status.set_phase(end_->ok ? "finished" : end_->suspended ? "suspended" : "failed");
    status.set_reason(end_->reason);
  } else if (const auto since = failure_detector_.cut_off_since()) {
    status.set_phase("cut off");
    status.set_reason(fmt::format("no worker is heard for {:.0f} s; those that train go on",
                                  Seconds(now - *since)));
  } else if (transition && transition->IsStuck()) {
    status.set_phase("paused");
    status.set_reason(transition->stuck);
  } else if (phase_ == JobPhase::kAdopting ||
             (transition && transition->kind == Transition::Kind::kRecover)) {
    status.set_phase("recovering");
  } else if (!generations_.held() && !transition && suspension_.after()) {
    status.set_phase("suspended");
    status.set_reason(fmt::format("goes on after step {} when workers come", *suspension_.after()));
  } else if (!generations_.held()) {
    status.set_phase("forming");
  } else if (suspension_.IsActive()) {
    status.set_phase("suspending");
    status.set_reason(suspension_.IsStopping() ? "all workers leave; they stop"
                                               : "all workers leave; their state is saved");
  } else {
    status.set_phase(transition ? "changing" : "training");
  }
  if (const auto& hold = loss_limit_.hold();
      hold && phase_ != JobPhase::kDone && status.reason().empty()) {
    status.set_reason(fmt::format(
        "nothing shows that {} of {} workers live: so many are not given up at once, {:.0f} s more",
        hold->suspects, hold->workers,
        Seconds(std::max(hold->since + policy().mass_silence - now, Duration(0)))));
  }
}

void Coordinator::State::DescribeWorkers(wire::JobStatus& status) const {
  for (const auto& [name, worker] : roster_.workers()) {
    wire::JobStatus::Worker& entry = *status.add_workers();
    entry.set_name(name);
    entry.set_host(worker.host);
    entry.set_pid(worker.pid);
    entry.set_applied_step(worker.applied_step);
    entry.set_metrics_address(worker.metrics_address);
    if (!worker.profile_json.empty()) {
      entry.set_slowdown(drift_.SlowdownOf(name));
    }
    if (const auto measured = drift_.MeasuredOf(name)) {
      entry.set_measured_slowdown(*measured);
    }
    entry.set_failure_domain(worker.failure_domain);
    entry.mutable_arithmetic()->insert(worker.arithmetic.begin(), worker.arithmetic.end());
    if (worker.move.all > 0) {
      entry.set_moved_bytes(worker.move.moved);
      entry.set_bytes_to_move(worker.move.all);
    }
    entry.set_may_stay(worker.draining && suspension_.asked().empty());
    if (!worker.seen || worker.absent) {
      entry.set_standing("absent");
    } else if (worker.profiling_until) {
      entry.set_standing("profiling");
    } else {
      entry.set_standing(worker.draining ? "draining" : StandingName(worker.standing));
    }
  }
}

void Coordinator::State::DescribeGuarantee(wire::JobStatus& status) const {
  const Provenance& provenance = lineage_.newest();
  status.set_guarantee(std::string(NameOf(provenance.guarantee)));
  status.set_guarantee_reason(provenance.reason);
}

wire::JobStatus Coordinator::State::Describe(Time now) const {
  wire::JobStatus status;
  const auto& held = generations_.held();
  DescribePhase(now, status);
  status.set_job_id(job_.id);
  status.set_output_folder(job_.output_folder);
  if (phase_ != JobPhase::kIdle) {
    status.set_step(steps_.known());
    status.set_total_steps(policy().total_steps);
  }
  const wire::StepRecord* const last = steps_.last_record();
  if (last != nullptr) {
    status.set_loss(last->loss());
  }
  if (const auto validation = steps_.validation_loss()) {
    status.set_validation_loss(*validation);
  }
  if (steps_.seconds() > 0) {
    status.set_step_seconds(steps_.seconds());
    if (last != nullptr) {
      status.set_tokens_per_second(static_cast<double>(last->tokens()) / steps_.seconds());
    }
    status.set_seconds_left(static_cast<double>(policy().total_steps - steps_.known()) *
                            steps_.seconds());
  }
  if (held) {
    status.set_generation(held->number);
    if (held->plan.predicted_step_seconds > 0) {
      status.set_predicted_step_seconds(held->plan.predicted_step_seconds);
    }
    status.set_plan_json(held->plan.plan_json);
    DescribeGuarantee(status);
  }
  for (const int64_t step : saves_.committed()) {
    status.add_checkpoint_steps(step);
  }
  DescribeWorkers(status);
  return status;
}

Status Coordinator::State::CheckInvariants() const {
  for (const std::string& name : steps_.finished()) {
    if (!generations_.IsMember(name)) {
      return InternalError("{} has finished and is no member", name);
    }
  }
  HEDDLE_RETURN_IF_ERROR(generations_.Check());
  HEDDLE_RETURN_IF_ERROR(roster_.Check());
  HEDDLE_RETURN_IF_ERROR(links_.Check(roster_));
  HEDDLE_RETURN_IF_ERROR(suspension_.Check(generations_));
  if (suspension_.IsActive() && transitions_.current()) {
    return InternalError("a job is being suspended while its generation changes");
  }
  HEDDLE_RETURN_IF_ERROR(
      saves_.Check(end_ && end_->ok && CheckpointDue(policy(), policy().total_steps)));
  return transitions_.Check(roster_, generations_, sources_);
}

}  // namespace heddle::elastic
