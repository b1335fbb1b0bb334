// The coordinator's own restart: it continues from its durable state and adopts the workers that
// train.
#include <algorithm>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {

Coordinator::State::State(const DurableState& restored, const Job& job, Time now)
    : phase_(JobPhase::kAdopting),
      job_(job),
      started_(now) {
  if (restored.data != 0) {
    job_.data = restored.data;
  }
  generations_.Restore(restored);
  generations_.Allot(job.used_generation);
  links_.Restore(restored);
  sources_.Restore(restored);
  steps_.Restore(restored, now);
  saves_.Restore(job.checkpoints, restored.given_up_checkpoints);
  agreement_.Restore(restored);
  lineage_.Restore(restored, job.provenance);
  RestoreDisagreement(now);
  roster_.Restore(restored, now);
  transitions_.Restore(roster_);
  adopt_until_ = now + policy().lease + policy().adopt_extra;
  promised_tick_ = NextDeadline();
}

void Coordinator::State::FinishAdopting(Time now, Outbox& out) {
  Effects absent;
  for (const auto& [name, worker] : roster_.workers()) {
    if (!worker.seen) {
      absent.losses.push_back({name, "it did not come back to the restarted coordinator"});
    }
  }
  if (!absent.losses.empty() && now < std::max(*adopt_until_, failure_detector_.excused_until())) {
    return;
  }
  adopt_until_.reset();
  Apply(absent, now, out);
  const auto& held = generations_.held();
  if (steps_.known() > 0 || held) {
    recoveries_.BeginAt(started_);
  }
  if (!held || held->members.empty()) {
    return BeginForming(now);
  }
  phase_ = JobPhase::kActive;
  bool intact = held->members.size() == held->plan.members.size() && blame_.empty();
  for (const auto& [name, incarnation] : held->members) {
    const Worker& worker = roster_.at(name);
    intact =
        intact && worker.standing_generation == held->number &&
        (worker.standing == wire::STANDING_TRAINING || worker.standing == wire::STANDING_FINISHED ||
         worker.standing == wire::STANDING_READY);
  }
  if (!intact) {
    decisions_.Note({.worker = "", .what = "the coordinator was started again"});
    return Recover(Cause::kRestart, now, out);
  }
  if (sources_.refusals().Disagreed(held->number)) {  // It ended before they were halted.
    decisions_.Note(
        {.worker = "", .what = "replicas differed before the coordinator was started again"});
    return Recover(Cause::kDisagreement, now, out);
  }
  recoveries_.End();
  out.Log("coordinator_restarted", {{"generation", held->number}});
  lineage_.Tell(held->number, out);
  for (const auto& [name, incarnation] : held->members) {
    SendGoAgain(roster_.at(name), out);
  }
}

}  // namespace heddle::elastic
