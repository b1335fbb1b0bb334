#include <algorithm>

#include "elastic/control/coordinator_state.h"

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

wire::JobStatus Coordinator::State::StatusAt(Time /*now*/) const {
  wire::JobStatus status;
  const bool stuck = transition && transition->stuck_since;
  if (phase == Phase::kIdle) {
    status.set_phase("idle");
  } else if (phase == Phase::kDone) {
    status.set_phase(end->ok ? "finished" : "failed");
    status.set_reason(end->reason);
  } else if (stuck) {
    status.set_phase("paused");
    status.set_reason(transition->stuck);
  } else if (phase == Phase::kAdopting ||
             (transition && transition->kind == Transition::Kind::kRecover)) {
    status.set_phase("recovering");
  } else if (phase == Phase::kForming) {
    status.set_phase("forming");
  } else {
    status.set_phase(transition ? "changing" : "training");
  }
  status.set_job_id(job.id);
  status.set_output_folder(job.output_folder);
  status.set_step(known_step);
  status.set_total_steps(policy().total_steps);
  status.set_loss(last_record.loss());
  status.set_validation_loss(validation_loss);
  status.set_step_seconds(smoothed_step_seconds);
  if (smoothed_step_seconds > 0) {
    status.set_tokens_per_second(static_cast<double>(last_record.tokens()) / smoothed_step_seconds);
    status.set_seconds_left(static_cast<double>(policy().total_steps - known_step) *
                            smoothed_step_seconds);
  }
  if (held) {
    status.set_generation(held->number);
    status.set_predicted_step_seconds(held->plan.predicted_step_seconds);
    status.set_plan_json(held->plan.plan_json);
  }
  for (const int64_t step : checkpoints) {
    status.add_checkpoint_steps(step);
  }
  for (const auto& [name, worker] : workers) {
    wire::JobStatus::Worker& entry = *status.add_workers();
    entry.set_name(name);
    entry.set_host(worker.host);
    entry.set_pid(worker.pid);
    entry.set_applied_step(worker.applied_step);
    entry.set_metrics_address(worker.metrics_address);
    entry.set_slowdown(worker.slowdown);
    entry.set_failure_domain(worker.failure_domain);
    if (!worker.seen) {
      entry.set_standing("absent");
    } else if (worker.profiling_until) {
      entry.set_standing("profiling");
    } else {
      entry.set_standing(worker.draining ? "draining" : StandingName(worker.standing));
    }
  }
  return status;
}

Status Coordinator::State::CheckInvariants() const {
  if (held && held->number > generation_counter) {
    return InternalError("generation {} is above the counter {}", held->number, generation_counter);
  }
  if (held && transition && transition->generation <= held->number) {
    return InternalError("generation {} would follow {}", transition->generation, held->number);
  }
  for (const std::string& name : finished) {
    if (!IsMember(name)) {
      return InternalError("{} has finished and is no member", name);
    }
  }
  for (const auto& [connection, name] : connections) {
    const auto worker = workers.find(name);
    if (worker == workers.end() || worker->second.connection != connection) {
      return InternalError("connection {} belongs to nobody ({})", connection, name);
    }
  }
  if (transition) {
    for (const std::string& name : transition->awaited) {
      if (workers.count(name) == 0) {
        return InternalError("an answer of {} is awaited, which is gone", name);
      }
    }
  }
  if (transition && transition->source == Source::kReplicas &&
      transition->stage != Transition::Stage::kHalt) {
    const auto source = snapshots.find(transition->snapshot_generation);
    if (source == snapshots.end()) {
      return InternalError("nobody knows the parts of a snapshot of generation {}",
                           transition->snapshot_generation);
    }
    std::set<int32_t> present;
    const wire::Start::Replicas replicas = MakeReplicas();
    for (const wire::Start::Replicas::Holder& holder : replicas.holders()) {
      present.insert(holder.owners().begin(), holder.owners().end());
    }
    if (present.size() != source->second.owners.size()) {
      return InternalError("{} parts of {} of a snapshot are held", present.size(),
                           source->second.owners.size());
    }
  }
  std::set<std::string> hosts;
  for (const auto& [request, measurement] : measuring) {
    std::set<std::string> own;
    for (const std::string& name : measurement.workers) {
      if (workers.count(name) == 0) {
        return InternalError("links of {} are measured, which is gone", name);
      }
      own.insert(workers.at(name).host);
    }
    for (const std::string& host : own) {
      if (!hosts.insert(host).second) {
        return InternalError("host {} is in two measurements", host);
      }
    }
  }
  if (phase == Phase::kRunning && !held && !transition) {
    return InternalError("running without a generation");
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
