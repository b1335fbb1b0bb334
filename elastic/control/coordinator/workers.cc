// Handles the messages of workers, and their joining and loss in all components.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {
namespace {

void Refuse(ConnectionId connection, const wire::Refused& refused, Outbox& out) {
  out.Tell(connection, refused);
  out.Add(Close{connection});
}

wire::Refused RefusalOf(const Roster::Answer& answer) {
  wire::Refused refused;
  refused.set_reason(answer.reason);
  refused.set_permanent(answer.permanent);
  refused.set_rejoins(answer.rejoins);
  return refused;
}

}  // namespace

// ---- Hello ----

void Coordinator::State::OnHello(ConnectionId connection,
                                 const wire::Hello& hello,
                                 Time now,
                                 Outbox& out) {
  using Kind = Roster::Answer::Kind;
  if (const auto other = OtherJob(hello)) {
    return Refuse(connection, *other, out);
  }
  Roster::Answer answer = roster_.Judge(hello, phase_ == JobPhase::kDone, now, policy().lease);
  // A new worker, not one of the job that has ended, asks again until there is a next job.
  if (phase_ == JobPhase::kDone &&
      roster_.Judge(hello, false, now, policy().lease).kind == Kind::kJoin) {
    answer = {Kind::kRefuse, "the job has ended, the next one is waited for", false};
  }
  if (answer.kind == Kind::kReleased) {
    out.Tell(connection, answer.release);
    return out.Add(Close{connection});
  }
  if (answer.kind == Kind::kRefuse) {
    return Refuse(connection, RefusalOf(answer), out);
  }
  if (answer.kind != Kind::kReturn) {
    if (const auto unlike = Unlike(hello.name(), IdentityOf(hello), out)) {
      return Refuse(connection, *unlike, out);
    }
  }
  EndSilence(now, out);
  if (answer.kind == Kind::kReturn) {
    return OnReturn(connection, hello, now, out);
  }
  if (answer.kind == Kind::kReplace) {
    Lose({hello.name(), "another process took its place", false}, now, out);
  }
  if (const auto hold_off = HoldOff(hello.name(), now)) {
    wire::Refused refused;
    refused.set_reason(
        fmt::format("{} was lost {} times shortly after it came: held off for {:.1f} s",
                    hello.name(), hold_off->short_lives, Seconds(hold_off->pause)));
    refused.set_seconds(Seconds(hold_off->pause));
    return Refuse(connection, refused, out);
  }
  const std::string name = roster_.Join(connection, hello, now);
  quarantine_.Join(name, now);
  if (phase_ != JobPhase::kIdle) {
    out.Persist();  // A restarted coordinator must know which worker has the name.
    WelcomeWorker(name, false, out);
  }
}

// The address of the worker's coordinator may lead here by mistake, and soon lead to the right one
// again: this job must not end what the worker trains, and its name may also be that of one of this
// job's workers.
std::optional<wire::Refused> Coordinator::State::OtherJob(const wire::Hello& hello) const {
  if (hello.job_id().empty() || hello.job_id() == job_.id) {
    return std::nullopt;
  }
  wire::Refused refused;
  refused.set_reason(fmt::format(
      "{}, and this worker takes part in another one: its coordinator's name leads elsewhere, or "
      "that job's coordinator is gone",
      job_.id.empty() ? "there is no job here" : "this is job " + job_.id));
  refused.set_rejoins(true);
  return refused;
}

std::optional<Quarantine::HoldOff> Coordinator::State::HoldOff(const std::string& name,
                                                               Time now) const {
  const auto& transition = transitions_.current();
  const int left = static_cast<int>(CandidatesOf(roster_).size());
  const bool needed = !IsRunning() || (transition && transition->IsStuck()) ||
                      left < std::max(1, policy().min_workers);
  return needed ? std::nullopt : quarantine_.Find(name, now);
}

void Coordinator::State::WelcomeWorker(const std::string& name, bool again, Outbox& out) {
  roster_.Welcome(name, again, job_, steps_.known(), out);
  links_.PlacesChanged();
  if (!again) {
    links_.WorkerJoined(roster_.at(name));
  }
}

// A member that is ready has not received Go. Its generation also stays in force while the next one
// is prepared.
void Coordinator::State::SendGoAgain(const Worker& worker, Outbox& out) {
  const auto& transition = transitions_.current();
  if (!IsRunning() || (transition && (transition->kind != Transition::Kind::kChange ||
                                      transition->In<Moving>() != nullptr))) {
    return;
  }
  const DurableGeneration& held = *generations_.held();
  if (generations_.IsMember(worker.name) && worker.standing == wire::STANDING_READY &&
      worker.standing_generation == held.number) {
    wire::Go go;
    go.set_generation(held.number);
    out.Tell(worker.connection, go);
  }
}

// ---- Messages ----

void Coordinator::State::OnMessage(const Worker& worker,
                                   const wire::FromWorker& message,
                                   Time now,
                                   Outbox& out) {
  // A copy, because the worker may be forgotten while its message is handled.
  const std::string name = worker.name;
  TransitionContext context = MakeContext(now, out);
  switch (message.kind_case()) {
    case wire::FromWorker::kProfiled:
      return OnProfiled(worker, message.profiled(), now, out);
    case wire::FromWorker::kLinksMeasured:
      return links_.TakeAnswer(worker, message.links_measured(), roster_, policy().links, out);
    case wire::FromWorker::kPrepared:
      return Apply(transitions_.OnPrepared(name, message.prepared(), context), now, out);
    case wire::FromWorker::kStepDone:
      TakeRecords(name, message.step_done().records(), now, out);
      return;
    case wire::FromWorker::kPeerLost:
      return OnPeerLost(worker, message.peer_lost(), now, out);
    case wire::FromWorker::kHalted:
      if (transitions_.AwaitsHalted(name, message.halted().generation()) &&
          TakeRecords(name, message.halted().records(), now, out)) {
        transitions_.TakeHalted(name, message.halted());
      }
      return;
    case wire::FromWorker::kStopped:
      return OnStopped(worker, message.stopped(), now, out);
    case wire::FromWorker::kReady:
      return Apply(transitions_.OnReady(name, message.ready(), context), now, out);
    case wire::FromWorker::kCheckpointPart:
      if (phase_ != JobPhase::kDone) {
        const wire::CheckpointPart& part = message.checkpoint_part();
        saves_.TakePart(name, part, generations_,
                        {.validation_loss = steps_.ValidationOf(part.step()),
                         .data = job_.data,
                         .provenance = lineage_.Of(part.step())},
                        out);
      }
      return;
    case wire::FromWorker::kValidation:
      return OnValidation(name, message.validation(), out);
    case wire::FromWorker::kHeartbeat:
      return OnHeartbeat(worker, message.heartbeat(), now, out);
    case wire::FromWorker::kStateDigests:
      return OnStateDigests(name, message.state_digests(), now, out);
    case wire::FromWorker::kLeaving:
      return OnLeaving(worker, message.leaving(), now, out);
    case wire::FromWorker::kFinished:
      return OnFinished(worker, message.finished(), now, out);
    case wire::FromWorker::kHello:
    case wire::FromWorker::KIND_NOT_SET:
      return;
  }
}

// A profile that no plan can use would keep all workers from a plan. A worker that reads other data
// would train on them as if they were the job's.
void Coordinator::State::OnProfiled(const Worker& worker,
                                    const wire::Profiled& message,
                                    Time now,
                                    Outbox& out) {
  if (!message.error().empty() || message.profile_json().empty()) {
    const std::string why = message.error().empty() ? "it is empty" : message.error();
    return Lose({worker.name, "its profile is of no use: " + why, false}, now, out);
  }
  if (worker.arithmetic.empty()) {
    return Lose({worker.name, "it does not say what it computes on", false}, now, out);
  }
  // Durable before a generation counts on it, as the whole state is.
  if (job_.data == 0) {
    job_.data = message.data();
  } else if (message.data() != job_.data) {
    return Lose({worker.name,
                 fmt::format("its data are not the job's: they have the fingerprint {:016x} there, "
                             "and the job's {:016x}",
                             message.data(), job_.data),
                 false},
                now, out);
  }
  roster_.TakeProfile(worker.name, message.profile_json());
  links_.PlacesChanged();
}

// A generation begins once the record of each step before it is known, which is durable with it. So
// reports of earlier generations' steps are either known or of a history that was given up; a
// worker that is no member may have trained in that history and repeat its reports.
bool Coordinator::State::Counts(const std::string& worker, int64_t generation) const {
  return generations_.IsMember(worker) && generation == generations_.held()->number;
}

bool Coordinator::State::TakeRecords(
    const std::string& worker,
    const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
    Time now,
    Outbox& out) {
  if (phase_ == JobPhase::kDone) {
    return false;
  }
  google::protobuf::RepeatedPtrField<wire::StepRecord> counting;
  for (const wire::StepRecord& record : records) {
    if (Counts(worker, record.generation())) {
      *counting.Add() = record;
    }
  }
  const int64_t before = steps_.known();
  const std::string failure = steps_.Take(counting, policy(), out);
  if (steps_.known() > before) {
    recoveries_.StepDone();
    blame_.ForgetCircle();
    decisions_.NoteStep(steps_.known(), now, out);
  }
  if (!failure.empty()) {
    End({false, false, failure}, out);
  }
  return failure.empty();
}

void Coordinator::State::OnValidation(const std::string& name,
                                      const wire::Validation& message,
                                      Outbox& out) {
  if (phase_ != JobPhase::kDone && Counts(name, message.generation()) &&
      steps_.TakeValidation(message, out) &&
      (saves_.IsCommitting(message.step()) || saves_.IsCommitted(message.step()))) {
    out.Add(NoteValidation{message.step(), message.loss()});
  }
}

void Coordinator::State::OnHeartbeat(const Worker& worker,
                                     const wire::Heartbeat& message,
                                     Time now,
                                     Outbox& out) {
  roster_.TakeHeartbeat(worker.name, message, policy().profile_timeout, now);
  if (generations_.IsMember(worker.name)) {
    failure_detector_.NoteStep(message.generation(), message.applied_step(), now);
  }
  if (!transitions_.current()) {
    drift_.Count(worker.name, message, generations_, policy().drift);
    link_drift_.Count(worker.name, message, generations_, policy().drift);
  }
  wire::Alive alive;
  alive.set_known_step(steps_.durable());
  out.Tell(worker.connection, alive);
}

void Coordinator::State::OnPeerLost(const Worker& worker,
                                    const wire::PeerLost& message,
                                    Time now,
                                    Outbox& out) {
  const auto& held = generations_.held();
  const auto& transition = transitions_.current();
  const bool of_held = held && message.generation() == held->number &&
                       generations_.IsMember(worker.name) &&
                       (!transition || transition->kind == Transition::Kind::kChange);
  const bool of_move =
      transition && transition->In<Moving>() != nullptr &&
      (message.generation() == transition->generation || message.generation() == transition->fence);
  if (of_held || of_move) {
    const Worker* accused = message.peer() == worker.name ? nullptr : roster_.Find(message.peer());
    if (accused != nullptr) {
      loss_limit_.NoteAccused(*accused, now);
    }
    if (loss_limit_.hold()) {
      failure_detector_.Reconsider();  // A held loss may be admitted now.
    }
    Apply({.losses = blame_.Accuse(worker.name, message.peer() == worker.name ? "" : message.peer(),
                                   message.reason(), roster_, generations_, now)},
          now, out);
  }
}

void Coordinator::State::OnFinished(const Worker& worker,
                                    const wire::Finished& message,
                                    Time now,
                                    Outbox& out) {
  const auto& held = generations_.held();
  if (!held || message.generation() != held->number || !generations_.IsMember(worker.name)) {
    return;
  }
  roster_.SetStanding(worker.name, wire::STANDING_FINISHED);
  steps_.Finish(worker.name);
  TransitionContext context = MakeContext(now, out);
  Apply(transitions_.OnStopped(worker.name, message.generation(), message.step(), context), now,
        out);
}

// ---- Losses ----

void Coordinator::State::Apply(const Effects& effects, Time now, Outbox& out) {
  for (const Loss& loss : effects.losses) {
    Lose(loss, now, out);
  }
  if (effects.end) {
    End(*effects.end, out);
  } else if (effects.suspend) {
    BeginSuspension(now, out);
  }
}

void Coordinator::State::Recover(Cause cause, Time now, Outbox& out) {
  suspension_.Drop();
  TransitionContext context = MakeContext(now, out);
  Apply(transitions_.Recover(cause, context), now, out);
}

void Coordinator::State::Lose(const Loss& loss, Time now, Outbox& out) {
  const auto& [name, reason, rejoins, accusers] = loss;
  const Worker* worker = roster_.Find(name);
  if (worker == nullptr || phase_ == JobPhase::kDone) {
    return;
  }
  if (worker->welcomed || !worker->seen) {
    out.Log("worker_lost", {{"worker", name}, {"reason", reason}});
    out.Add(WorkerGone{name, worker->pid});
  }
  if (worker->draining) {  // It has left: its process need not join again.
    roster_.KeepRelease(name, /*requeue=*/false);
    out.Persist();
  }
  if (!rejoins) {  // Otherwise it comes back by itself, and is then told to join as a new worker.
    wire::Abandon abandon;
    abandon.set_reason(reason);
    out.Tell(worker->connection, abandon);
  }
  decisions_.Note({.worker = name,
                   .what = reason,
                   .silent_seconds = Seconds(now - worker->last_heard_at),
                   .accusers = accusers});
  if (const auto hold_off = quarantine_.Lose(name, policy().quarantine, now)) {
    out.Log("worker_quarantined", {{"worker", name},
                                   {"seconds", Seconds(hold_off->pause)},
                                   {"short_lives", hold_off->short_lives}});
  }
  recoveries_.NoteLoss(name, reason);
  blame_.ForgetCircle();
  saves_.Lose(name, out);
  const bool member = generations_.IsMember(name);
  Dismiss(name, reason, rejoins, out);
  TransitionContext context = MakeContext(now, out);
  if (phase_ == JobPhase::kActive && transitions_.current()) {
    Apply(transitions_.OnLost(name, context), now, out);
  } else if (phase_ == JobPhase::kActive && member) {
    Recover(Cause::kLoss, now, out);
  }
}

void Coordinator::State::Dismiss(const std::string& name,
                                 const std::string& reason,
                                 bool rejoins,
                                 Outbox& out) {
  links_.Forget(name, roster_, policy().links, out);
  roster_.Dismiss(name, reason, rejoins, out);
  generations_.RemoveMember(name);
  steps_.Forget(name);
  drift_.Forget(name);
  agreement_.Forget(name);
  transitions_.Forget(name);
}

}  // namespace heddle::elastic
