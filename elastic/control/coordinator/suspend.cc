// All workers leave: the state that they hold is saved before they are released, and the job forms
// again when others join.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {

void Coordinator::State::On(const SuspendRequested& event, Time /*now*/, Outbox& /*out*/) {
  if (phase_ != JobPhase::kDone && phase_ != JobPhase::kIdle) {
    suspension_.Ask(event.reason);
  }
}

void Coordinator::State::ConsiderSuspension(Time now, Outbox& out) {
  if (!suspension_.asked().empty()) {
    for (const auto& [name, worker] : roster_.workers()) {
      if (!worker.draining) {
        roster_.Drain(name, suspension_.asked(), /*noticed=*/true);
      }
    }
  }
  suspension_.NoteLeaving(AllLeave(roster_), policy().notice, now);
  if (suspension_.IsActive()) {
    if (const auto outcome = suspension_.Look(generations_, saves_, now)) {
      EndSuspension(outcome->failure, now, out);
    }
    return;
  }
  if (suspension_.IsLate(now)) {
    return EndSuspension("the job did not come to rest in time", now, out);
  }
  const auto& transition = transitions_.current();
  const Planning* planning = transition ? transition->In<Planning>() : nullptr;
  if (!generations_.held() && (!transition || planning != nullptr)) {
    ReleaseLeaving(/*requeue=*/true, now, out);
    if (!suspension_.asked().empty() && phase_ == JobPhase::kActive) {
      const std::optional<SourceOption> stored = sources_.Stored(saves_);
      const bool lost = steps_.known() > (stored ? stored->step : 0);
      EndSuspension(lost ? "no worker is left that holds the newest state" : "", now, out);
    }
  } else if (CanSuspend()) {
    BeginSuspension(now, out);
  } else if (planning != nullptr && transition->kind == Transition::Kind::kRecover) {
    GiveUpRecovery(*transition, planning->origin.source, now, out);
  }
}

// Gives up if the leaving workers together do not hold the whole state, or can no longer form a
// generation that has it.
void Coordinator::State::GiveUpRecovery(const Transition& transition,
                                        Source source,
                                        Time now,
                                        Outbox& out) {
  const bool asked = !suspension_.asked().empty() && CandidatesOf(roster_).empty();
  const bool stored = source == Source::kCheckpoint || source == Source::kInitial;
  if ((asked || AllLeave(roster_)) && (transition.IsStuck() || stored)) {
    const std::string reason = transition.IsStuck() && !stored
                                   ? transition.stuck
                                   : "the workers that are left do not hold the whole state";
    EndSuspension(reason, now, out);
  }
}

void Coordinator::State::OnStopped(const Worker& worker,
                                   const wire::Stopped& message,
                                   Time now,
                                   Outbox& out) {
  roster_.SetStanding(worker.name, wire::STANDING_STOPPED);
  const auto& transition = transitions_.current();
  const bool trains =
      !transition || (transition->kind == Transition::Kind::kChange &&
                      transition->In<Stopping>() == nullptr && transition->In<Moving>() == nullptr);
  if (IsRunning() && trains && !suspension_.IsActive() &&
      Counts(worker.name, message.generation())) {
    // The coordinator's predecessor asked it, and all other members, to stop.
    return Recover(Cause::kRestart, now, out);
  }
  if (!suspension_.TakeStopped(worker.name, message.generation(), message.applied_step(), roster_,
                               generations_, out)) {
    return Recover(Cause::kFailure, now, out);
  }
  TransitionContext context = MakeContext(now, out);
  Apply(transitions_.OnStopped(worker.name, message.generation(), message.applied_step(), context),
        now, out);
}

bool Coordinator::State::CanSuspend() const {
  const auto& transition = transitions_.current();
  const bool trains = !transition || (transition->kind == Transition::Kind::kChange &&
                                      transition->In<Moving>() == nullptr);
  if (!IsRunning() || !trains || !blame_.empty() || !steps_.finished().empty() ||
      steps_.known() >= policy().total_steps || !AllLeave(roster_)) {
    return false;
  }
  const auto& members = generations_.held()->members;
  return std::all_of(members.begin(), members.end(),
                     [&](const auto& member) { return roster_.at(member.first).draining; });
}

void Coordinator::State::BeginSuspension(Time now, Outbox& out) {
  transitions_.Drop(generations_);
  suspension_.Begin(roster_, generations_, policy().notice, now, out);
}

void Coordinator::State::EndSuspension(const std::string& failure, Time now, Outbox& out) {
  const std::optional<SourceOption> stored = sources_.Stored(saves_);
  const int64_t step = stored ? stored->step : 0;
  suspension_.End(step);
  transitions_.Drop(generations_);
  decisions_.Drop();
  blame_.Clear();
  steps_.BeginGeneration();
  BeginForming(now);
  out.Persist();
  out.Log("suspended", {{"step", step},
                        {"steps_repeated", std::max<int64_t>(0, steps_.known() - step)},
                        {"reason", failure}});
  ReleaseLeaving(/*requeue=*/true, now, out);
  if (policy().ends_suspended) {
    const std::string why = failure.empty() ? "" : ": " + failure;
    End({.reason = fmt::format("suspended after step {}{}", step, why), .suspended = true}, out);
  }
}

void Coordinator::State::ReleaseLeaving(bool requeue, Time now, Outbox& out) {
  std::vector<std::pair<std::string, std::string>> released;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.draining && worker.welcomed && !generations_.IsMember(name)) {
      released.emplace_back(name, worker.leave_reason);
    }
  }
  for (const auto& [name, reason] : released) {
    if (roster_.Find(name) == nullptr) {
      continue;
    }
    roster_.KeepRelease(name, requeue);
    out.Persist();  // A restarted coordinator must resend the release.
    wire::Release release;
    release.set_reason(reason);
    release.set_requeue(requeue);
    out.Tell(roster_.at(name).connection, release);
    out.Log("worker_left", {{"worker", name}, {"reason", reason}});
    saves_.Lose(name, out);
    quarantine_.Leave(name);
    Dismiss(name, "released", false, out);
    if (transitions_.current()) {
      TransitionContext context = MakeContext(now, out);
      Apply(transitions_.OnLost(name, context), now, out);
    }
  }
}

}  // namespace heddle::elastic
