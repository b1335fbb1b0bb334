#include "elastic/control/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "elastic/control/coordinator/coordinator_state.h"
#include "elastic/control/deadline.h"

namespace heddle::elastic {

// ---- An event ----

std::vector<CoordinatorAction> Coordinator::State::Handle(const CoordinatorEvent& event, Time now) {
  Outbox out([this, now] { return MakeDurableState(now); });
  // A coordinator that was itself stopped must not take all workers for dead: the messages that
  // they sent meanwhile are still on their way.
  if (promised_tick_ && now - *promised_tick_ > policy().lease / 4) {
    failure_detector_.Excuse(now + policy().lease / 2);
  }
  const int64_t fence = transitions_.current() ? transitions_.current()->fence : 0;
  std::visit([&](const auto& e) { On(e, now, out); }, event);
  Advance(now, out);
  if (transitions_.current() && transitions_.current()->fence != fence) {
    failure_detector_.Reconsider();  // Workers that were spared because steps ran may be lost now.
  }
  if (IsRunning() && !transitions_.current()) {
    decisions_.Drop();
  }
  promised_tick_ = NextDeadline();
  return out.Take();
}

DurableState Coordinator::State::MakeDurableState(Time now) {
  DurableState durable;
  durable.job_id = job_.id;
  durable.job_yaml = job_.yaml;
  durable.secret = job_.secret;
  durable.output_folder = job_.output_folder;
  durable.data = job_.data;
  generations_.Store(durable);
  sources_.Store(durable);
  roster_.Store(durable);
  steps_.Store(durable, now);
  links_.Store(durable);
  saves_.Store(durable);
  agreement_.Store(durable);
  lineage_.Store(durable);
  durable.finished = end_.has_value() && end_->ok;
  durable.failed = end_.has_value() && !end_->ok && !end_->suspended ? end_->reason : "";
  return durable;
}

TransitionContext Coordinator::State::MakeContext(Time now, Outbox& out) {
  return {.job = job_,
          .roster = roster_,
          .generations = generations_,
          .blame = blame_,
          .links = links_,
          .steps = steps_,
          .saves = saves_,
          .sources = sources_,
          .agreement = agreement_,
          .drift = drift_,
          .link_drift = link_drift_,
          .formation = formation_,
          .recoveries = recoveries_,
          .decisions = decisions_,
          .outcomes = outcomes_,
          .lineage = lineage_,
          .now = now,
          .out = out};
}

void Coordinator::State::On(const Submitted& event, Time now, Outbox& out) {
  if (phase_ != JobPhase::kIdle) {
    return;
  }
  job_ = event.job;
  saves_.Restore(event.job.checkpoints);
  lineage_.BeginJob(event.job.provenance);
  generations_.Allot(event.job.used_generation);
  out.Persist();
  out.Log("job_started", {{"job", job_.id},
                          {"steps", policy().total_steps},
                          {"workers", static_cast<int64_t>(policy().initial_workers)}});
  BeginForming(now);
  WelcomeWaiting(out);
}

void Coordinator::State::BeginForming(Time now) {
  phase_ = JobPhase::kActive;
  formation_.Begin(now);
  generations_.Drop();
  sources_.Clear();
}

void Coordinator::State::On(const Received& event, Time now, Outbox& out) {
  if (event.message.has_hello()) {
    return OnHello(event.connection, event.message.hello(), now, out);
  }
  if (roster_.Speaks(event.connection)) {
    EndSilence(now, out);
    OnMessage(*roster_.NoteHeard(event.connection, now), event.message, now, out);
  }
}

void Coordinator::State::EndSilence(Time now, Outbox& out) {
  if (const auto since = failure_detector_.cut_off_since();
      failure_detector_.NoteHeard(roster_, policy(), now) && since) {
    out.Log("heard_again", {{"seconds", Seconds(now - *since)}});
    transitions_.Excuse(now - *since);
  }
}

void Coordinator::State::On(const Disconnected& event, Time now, Outbox& out) {
  const std::string name = roster_.Disconnect(event.connection, now);
  if (name.empty()) {
    return;
  }
  if (phase_ == JobPhase::kDone || phase_ == JobPhase::kIdle) {
    return Dismiss(name, "", false, out);
  }
  // An accusation without a name fits any member that disconnects.
  if (blame_.Fits(name, generations_.IsMember(name))) {
    Lose({.worker = name,
          .reason = "its connections broke",
          .accusers = blame_.AccusersOf(name, generations_.IsMember(name))},
         now, out);
  }
}

void Coordinator::State::On(const ProcessExited& event, Time now, Outbox& out) {
  launched_are_gone_ = launched_are_gone_ || event.last;
  const Worker* worker = roster_.Find(event.worker);
  if (worker == nullptr && !generations_.held()) {
    recoveries_.NoteLoss(event.worker, event.reason);  // It ended before it joined.
  }
  if (worker == nullptr || (worker->pid != event.pid && worker->seen)) {
    return;
  }
  if (phase_ == JobPhase::kDone || phase_ == JobPhase::kIdle) {
    return Dismiss(event.worker, "", false, out);
  }
  Lose({event.worker, event.reason, false}, now, out);
}

void Coordinator::State::On(const Planned& event, Time now, Outbox& out) {
  TransitionContext context = MakeContext(now, out);
  Apply(transitions_.OnPlanned(event.outcome, context), now, out);
}

void Coordinator::State::On(const CheckpointCommitted& event, Time /*now*/, Outbox& out) {
  if (phase_ != JobPhase::kDone && saves_.TakeCommit(event, out)) {
    sources_.NoteStateBytes(event.raw_bytes);
  }
}

void Coordinator::State::On(const CheckpointsPruned& event, Time /*now*/, Outbox& /*out*/) {
  saves_.Forget(event.steps);
}

void Coordinator::State::On(const EmulateRequested& event, Time /*now*/, Outbox& out) {
  const auto emulation = roster_.Emulate(event.worker, event.emulation, event.set_speed,
                                         event.set_memory, event.set_link, out);
  if (!emulation) {
    return;
  }
  job_.emulation[event.worker] = *emulation;
  if (event.set_link) {
    links_.PlacesChanged();
  }
}

void Coordinator::State::On(const CancelRequested& event, Time /*now*/, Outbox& out) {
  if (phase_ != JobPhase::kDone && phase_ != JobPhase::kIdle) {
    End({false, false, event.reason}, out);
  }
}

void Coordinator::State::On(const Ticked& /*event*/, Time now, Outbox& out) {
  if (phase_ != JobPhase::kDone) {
    JudgeSilence(now, out);
  }
}

// ---- Time and conditions ----

void Coordinator::State::Advance(Time now, Outbox& out) {
  TransitionContext context = MakeContext(now, out);
  const bool gathers = suspension_.Gathers(roster_, policy().coalesce, now);
  if (phase_ == JobPhase::kAdopting) {
    JudgeAccusations(now, out);
    FinishAdopting(now, out);
  }
  if (phase_ == JobPhase::kActive) {
    roster_.ScheduleProfiles(links_.BusyHosts(roster_), policy().profile_timeout, now, out);
    links_.CheckDeadlines(roster_, policy().links, now, out);
    JudgeAccusations(now, out);
    JudgeAnswers(now, out);
    Apply(transitions_.LeaveHalt(context), now, out);
    ConsiderSuspension(now, out);
    if (phase_ == JobPhase::kActive && !generations_.held() && !transitions_.current()) {
      Apply(transitions_.Form(context), now, out);
    }
    FinishIfDone(now, out);
    if (!gathers) {
      Consider(now, out);
    }
  }
  if (IsRunning()) {
    failure_detector_.NoteStep(generations_.held()->number, 0,
                               now);  // Takes effect once per generation.
  }
  if (phase_ == JobPhase::kActive) {
    JudgeWaits(now, out);  // After NoteStep: waits count from the begin of the generation.
  }
  EndIfNobodyIsLeft(out);
  if (IsRunning() && steps_.StoreIsDue(now)) {
    out.Persist();
  }
  if (auto list = roster_.TakeList(phase_ == JobPhase::kIdle)) {
    out.Add(*std::move(list));
  }
}

// Ends the job if no worker is left and none will join. A requested suspension ends it by itself.
void Coordinator::State::EndIfNobodyIsLeft(Outbox& out) {
  if (launched_are_gone_ && roster_.workers().empty() && suspension_.asked().empty() &&
      (phase_ == JobPhase::kActive || phase_ == JobPhase::kAdopting)) {
    End({.bad_input = refused_unlike_ && !generations_.held(),
         .reason = recoveries_.WithFirstLoss("no worker is left")},
        out);
  }
}

void Coordinator::State::End(const EndJob& end, Outbox& out) {
  if (end_) {
    return;
  }
  end_ = end;
  phase_ = JobPhase::kDone;
  transitions_.Drop(generations_);
  suspension_.Drop();
  blame_.Clear();
  links_.Stop();
  out.Persist();
  if (!end.ok && !end.suspended) {
    out.Log("job_failed", {{"reason", end.reason}});
  }
  for (const auto& [name, worker] : roster_.workers()) {
    if (end.ok || end.suspended) {
      wire::Release release;
      release.set_reason(end.reason);
      release.set_requeue(end.suspended);
      out.Tell(worker.connection, release);
    } else {
      wire::Abandon abandon;
      abandon.set_reason(end.reason);
      out.Tell(worker.connection, abandon);
    }
  }
  out.Add(end);
}

double Coordinator::State::StepSeconds() const {
  const auto& held = generations_.held();
  return held ? std::max(held->plan.predicted_step_seconds, steps_.seconds()) : 0;
}

void Coordinator::State::FinishIfDone(Time now, Outbox& out) {
  const auto& held = generations_.held();
  const auto& transition = transitions_.current();
  if (!IsRunning() || held->members.empty() || steps_.finished().size() != held->members.size() ||
      (transition && transition->kind != Transition::Kind::kChange)) {
    return;
  }
  transitions_.Drop(generations_);
  suspension_.Drop();
  const int64_t last = policy().total_steps;
  const bool saved = !CheckpointDue(policy(), last) || saves_.IsCommitted(last);
  if (!saved && (failure_detector_.cut_off_since() || now < failure_detector_.excused_until())) {
    return steps_.PutOffEnd(now);
  }
  if (const auto end =
          steps_.Close(policy(), saved, saves_.WhyFailed(last, held->number), now, out)) {
    End(*end, out);
  }
}

void Coordinator::State::Consider(Time now, Outbox& out) {
  if (!IsRunning() || transitions_.current() || suspension_.IsActive() || !blame_.empty() ||
      !steps_.finished().empty() || steps_.known() >= policy().total_steps) {
    return;
  }
  ReleaseLeaving(/*requeue=*/false, now, out);
  TransitionContext context = MakeContext(now, out);
  Apply(transitions_.Consider(context), now, out);
}

std::optional<Time> Coordinator::State::NextDeadline() const {
  if (phase_ == JobPhase::kDone) {
    return std::nullopt;
  }
  std::optional<Time> next = failure_detector_.NextDeadline(roster_, StepSeconds(), policy());
  Earlier(next, blame_.NextDeadline(policy().probe));
  Earlier(next, links_.NextDeadline());
  if (const auto due = transitions_.NextDeadline(policy(), roster_);
      due && !failure_detector_.cut_off_since()) {
    const Time held_until = loss_limit_.NextDeadline(policy()).value_or(*due);
    Earlier(next, std::max({*due, failure_detector_.excused_until(), held_until}));
  }
  Earlier(next, loss_limit_.NextDeadline(policy()));
  if (adopt_until_) {
    Earlier(next, std::max(*adopt_until_, failure_detector_.excused_until()));
  }
  Earlier(next, suspension_.NextDeadline());
  Earlier(next, steps_.NextDeadline(policy(), IsRunning()));
  if (phase_ == JobPhase::kActive && !generations_.held() && !transitions_.current()) {
    Earlier(next, formation_.NextDeadline(policy()));
  }
  return next;
}

// ---- The machine ----

Coordinator::Coordinator(int64_t generation_counter)
    : state_(std::make_unique<State>(generation_counter)) {}
Coordinator::Coordinator(const DurableState& restored, const Job& job, Time now)
    : state_(std::make_unique<State>(restored, job, now)) {}
Coordinator::Coordinator(const Coordinator& other)
    : state_(std::make_unique<State>(*other.state_)) {}
Coordinator& Coordinator::operator=(const Coordinator& other) {
  if (this != &other) {
    state_ = std::make_unique<State>(*other.state_);
  }
  return *this;
}
Coordinator::Coordinator(Coordinator&& other) noexcept = default;
Coordinator& Coordinator::operator=(Coordinator&& other) noexcept = default;
Coordinator::~Coordinator() = default;

std::vector<CoordinatorAction> Coordinator::Handle(const CoordinatorEvent& event, Time now) {
  return state_->Handle(event, now);
}
std::optional<Time> Coordinator::NextDeadline() const {
  return state_->NextDeadline();
}
wire::JobStatus Coordinator::StatusAt(Time now) const {
  return state_->Describe(now);
}
Status Coordinator::CheckInvariants() const {
  return state_->CheckInvariants();
}

}  // namespace heddle::elastic
