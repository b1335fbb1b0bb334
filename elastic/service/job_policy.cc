#include "elastic/service/job_policy.h"

#include <algorithm>

#include "checkpoint/save/writer.h"
#include "elastic/control/limits.h"

namespace heddle::elastic {
namespace {

DriftAction ActionOf(job::DriftAction action) {
  switch (action) {
    case job::DriftAction::kObserve:
      return DriftAction::kObserve;
    case job::DriftAction::kAdvise:
      return DriftAction::kAdvise;
    case job::DriftAction::kAct:
      break;
  }
  return DriftAction::kAct;
}

std::optional<Source> SourceOf(job::RecoverFrom from) {
  switch (from) {
    case job::RecoverFrom::kLive:
      return Source::kLive;
    case job::RecoverFrom::kReplicas:
      return Source::kReplicas;
    case job::RecoverFrom::kCheckpoint:
      return Source::kCheckpoint;
    case job::RecoverFrom::kFastest:
      break;
  }
  return std::nullopt;
}

Guarantee DemandOf(job::Guarantee guarantee) {
  switch (guarantee) {
    case job::Guarantee::kPerPlan:
      return Guarantee::kPerPlan;
    case job::Guarantee::kPlanInvariant:
      return Guarantee::kPlanInvariant;
    case job::Guarantee::kNone:
      break;
  }
  return Guarantee::kNone;
}

}  // namespace

JobPolicy PolicyOf(const job::JobConfig& job) {
  JobPolicy policy;
  policy.initial_workers = static_cast<int>(job.workers.size());
  policy.min_workers = static_cast<int>(job.elastic.minimum_workers);
  policy.total_steps = job.steps;
  policy.checkpoint_every = job.checkpoint.every;
  policy.final_checkpoint = job.checkpoint.last;
  policy.replicate_every = job.checkpoint.replicas.every;
  policy.replica_copies = static_cast<int>(job.checkpoint.replicas.copies);
  const bool validates = job.data.validation_fraction > 0;
  policy.validate_every = validates ? job.validation.every : 0;
  policy.final_validation = validates;
  policy.stop_on_non_finite = job.on_non_finite == job::NonFinitePolicy::kStop;
  policy.threads = job.threads;
  policy.exact_sums = job.determinism == program::Determinism::kExact;
  policy.checkpoints_round = job.checkpoint.moments != job::MomentStorage::kExact;
  policy.demanded = DemandOf(job.guarantee);
  policy.drift.action = ActionOf(job.elastic.drift);
  policy.drift.threshold = job.elastic.drift_threshold;
  policy.recovery.prefer = SourceOf(job.elastic.recover_from);
  policy.links.transports = job.comm.preference().list;
  SetLease(policy, job.elastic.lease);
  policy.digest_every = job.elastic.digest_every;
  policy.notice = job.elastic.notice;
  // A hung worker is to be found before the calls of the others time out, which would not tell
  // which worker hangs.
  policy.hang_timeout = std::min(policy.hang_timeout, job.elastic.operation_timeout / 2);
  if (!job.checkpoint.background) {  // The save delays the end of its step.
    policy.stop_timeout += checkpoint::kDirectTimeout;
  }
  return policy;
}

wire::Emulation WireEmulation(const job::Emulation& emulation) {
  wire::Emulation out;
  out.set_speed(emulation.speed);
  out.set_memory_bytes(emulation.memory_bytes);
  out.set_link_bytes_per_second(emulation.link_bytes_per_second);
  return out;
}

job::Emulation EmulationOf(const wire::Emulation& emulation) {
  return {.speed = emulation.speed() > 0 ? emulation.speed() : 1,
          .memory_bytes = emulation.memory_bytes(),
          .link_bytes_per_second = emulation.link_bytes_per_second()};
}

Job MakeJob(const job::JobConfig& job, const std::string& output_folder) {
  Job out;
  out.id = job.hash;
  out.yaml = job.text;
  out.output_folder = output_folder;
  out.checkpoint_root = job.checkpoint.RootIn(output_folder);
  out.policy = PolicyOf(job);
  out.devices[""] = job.device;
  for (const job::WorkerSection& worker : job.workers) {
    out.devices[worker.name] = worker.device;
    out.emulation[worker.name] = WireEmulation(worker.emulation);
    if (!worker.failure_domain.empty()) {
      out.failure_domains[worker.name] = worker.failure_domain;
    }
  }
  return out;
}

}  // namespace heddle::elastic
