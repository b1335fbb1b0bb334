// What workers say, and what it means for all rooms when one comes or goes.
#include <utility>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {

// ---- Hello ----

void Coordinator::State::OnHello(ConnectionId connection,
                                 const wire::Hello& hello,
                                 Time now,
                                 Outbox& out) {
  using Kind = Roster::Answer::Kind;
  Roster::Answer answer = roster_.Judge(hello, phase_ == Phase::kDone, now, policy().lease);
  // A new worker, not one of the job that has ended: it asks again until there is the next job.
  if (phase_ == Phase::kDone &&
      roster_.Judge(hello, false, now, policy().lease).kind == Kind::kJoin) {
    answer = {Kind::kRefuse, "the job has ended, the next one is waited for", false};
  }
  if (answer.kind == Kind::kRefuse) {
    wire::Refused refused;
    refused.set_reason(answer.reason);
    refused.set_permanent(answer.permanent);
    refused.set_rejoins(answer.rejoins);
    out.Tell(connection, refused);
    return out.Add(Close{connection});
  }
  EndSilence(now, out);
  if (answer.kind == Kind::kReturn) {
    roster_.Return(connection, hello, now, out);
    if (phase_ != Phase::kIdle) {
      WelcomeWorker(hello.name(), true, out);
      const Worker& worker = roster_.at(hello.name());
      if (worker.profiling_until) {
        out.Tell(connection, wire::Profile());
      }
      links_.Repeat(worker, roster_, policy().links, out);
      Scene scene = MakeScene(now, out);
      transitions_.Repeat(worker, scene);
      if (!transitions_.current() && IsRunning()) {
        SendGoAgain(worker, out);
      }
    }
    return;
  }
  if (answer.kind == Kind::kReplace) {
    Lose({hello.name(), "another process took its place", false}, now, out);
  }
  const std::string name = roster_.Join(connection, hello, now);
  if (phase_ != Phase::kIdle) {
    out.Persist();  // A restarted coordinator must know whose the name is.
    WelcomeWorker(name, false, out);
  }
}

void Coordinator::State::WelcomeWorker(const std::string& name, bool again, Outbox& out) {
  roster_.Welcome(name, again, job_, steps_.known(), out);
  links_.PlacesChanged();
  if (!again) {
    links_.WorkerJoined(roster_.at(name));
  }
}

// A member that is ready has not heard that its generation is in force.
void Coordinator::State::SendGoAgain(const Worker& worker, Outbox& out) {
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
  // Of its own, for the worker may be forgotten while its message is handled.
  const std::string name = worker.name;
  Scene scene = MakeScene(now, out);
  switch (message.kind_case()) {
    case wire::FromWorker::kProfiled:
      return OnProfiled(worker, message.profiled(), now, out);
    case wire::FromWorker::kLinksMeasured:
      return links_.TakeAnswer(worker, message.links_measured(), roster_, policy().links, out);
    case wire::FromWorker::kPrepared:
      return Apply(transitions_.OnPrepared(name, message.prepared(), scene), now, out);
    case wire::FromWorker::kStepDone:
      TakeRecords(name, message.step_done().records(), out);
      return;
    case wire::FromWorker::kPeerLost:
      return OnPeerLost(worker, message.peer_lost(), now, out);
    case wire::FromWorker::kHalted:
      if (transitions_.AwaitsHalted(name, message.halted().generation()) &&
          TakeRecords(name, message.halted().records(), out)) {
        transitions_.TakeHalted(name, message.halted());
      }
      return;
    case wire::FromWorker::kStopped:
      roster_.SetStanding(name, wire::STANDING_STOPPED);
      return Apply(transitions_.OnStopped(name, message.stopped().generation(),
                                          message.stopped().applied_step(), scene),
                   now, out);
    case wire::FromWorker::kReady:
      return Apply(transitions_.OnReady(name, message.ready(), scene), now, out);
    case wire::FromWorker::kCheckpointPart:
      if (phase_ != Phase::kDone) {
        const wire::CheckpointPart& part = message.checkpoint_part();
        saves_.TakePart(name, part, generations_, steps_.ValidationOf(part.step()), out);
      }
      return;
    case wire::FromWorker::kValidation:
      return OnValidation(name, message.validation(), out);
    case wire::FromWorker::kHeartbeat:
      return OnHeartbeat(worker, message.heartbeat(), now, out);
    case wire::FromWorker::kLeaving:
      if (phase_ == Phase::kDone) {
        return;
      }
      return message.leaving().at_once() ? Lose({name, message.leaving().reason(), false}, now, out)
                                         : roster_.Drain(name, message.leaving().reason());
    case wire::FromWorker::kFinished:
      return OnFinished(worker, message.finished(), now, out);
    case wire::FromWorker::kHello:
    case wire::FromWorker::KIND_NOT_SET:
      return;
  }
}

// A profile that no plan can be made with would keep all others from theirs.
void Coordinator::State::OnProfiled(const Worker& worker,
                                    const wire::Profiled& message,
                                    Time now,
                                    Outbox& out) {
  if (!message.error().empty() || message.profile_json().empty()) {
    const std::string why = message.error().empty() ? "it is empty" : message.error();
    return Lose({worker.name, "its profile is of no use: " + why, false}, now, out);
  }
  roster_.TakeProfile(worker.name, message.profile_json());
  links_.PlacesChanged();
}

// A generation begins when the record of each step before it is known, and that is durable with it:
// what is said of steps of earlier ones is either known or of a history that was given up. Who is
// no member may have trained in that one, and repeat it.
bool Coordinator::State::Counts(const std::string& worker, int64_t generation) const {
  return generations_.IsMember(worker) && generation == generations_.held()->number;
}

bool Coordinator::State::TakeRecords(
    const std::string& worker,
    const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
    Outbox& out) {
  if (phase_ == Phase::kDone) {
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
  }
  if (!failure.empty()) {
    End({false, false, failure}, out);
  }
  return failure.empty();
}

void Coordinator::State::OnValidation(const std::string& name,
                                      const wire::Validation& message,
                                      Outbox& out) {
  if (phase_ != Phase::kDone && Counts(name, message.generation()) &&
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
    silence_.NoteStep(message.generation(), message.applied_step(), now);
  }
  if (!transitions_.current()) {
    drift_.Count(worker.name, message, generations_, policy().drift);
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
  Scene scene = MakeScene(now, out);
  Apply(transitions_.OnStopped(worker.name, message.generation(), message.step(), scene), now, out);
}

// ---- Losses, and the end ----

void Coordinator::State::Apply(const Consequence& consequence, Time now, Outbox& out) {
  for (const Loss& loss : consequence.losses) {
    Lose(loss, now, out);
  }
  if (consequence.end) {
    End(*consequence.end, out);
  }
}

void Coordinator::State::Lose(const Loss& loss, Time now, Outbox& out) {
  const auto& [name, reason, rejoins] = loss;
  const Worker* worker = roster_.Find(name);
  if (worker == nullptr || phase_ == Phase::kDone) {
    return;
  }
  if (worker->welcomed || !worker->seen) {
    out.Log("worker_lost", {{"worker", name}, {"reason", reason}});
    out.Add(WorkerGone{name, worker->pid});
  }
  if (!rejoins) {  // Else it comes again by itself, and learns then what becomes of it.
    wire::Abandon abandon;
    abandon.set_reason(reason);
    out.Tell(worker->connection, abandon);
  }
  saves_.Lose(name, out);
  const bool member = generations_.IsMember(name);
  Dismiss(name, reason, rejoins, out);
  Scene scene = MakeScene(now, out);
  if (phase_ == Phase::kActive && transitions_.current()) {
    Apply(transitions_.OnLost(name, scene), now, out);
  } else if (phase_ == Phase::kActive && member) {
    Apply(transitions_.Recover(scene), now, out);
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
  transitions_.Forget(name);
}

void Coordinator::State::End(const EndJob& end, Outbox& out) {
  if (end_) {
    return;
  }
  end_ = end;
  phase_ = Phase::kDone;
  transitions_.Drop();
  blame_.Clear();
  links_.Stop();
  out.Persist();
  if (!end.ok) {
    out.Log("job_failed", {{"reason", end.reason}});
  }
  for (const auto& [name, worker] : roster_.workers()) {
    if (end.ok) {
      wire::Release release;
      release.set_reason(end.reason);
      out.Tell(worker.connection, release);
    } else {
      wire::Abandon abandon;
      abandon.set_reason(end.reason);
      out.Tell(worker.connection, abandon);
    }
  }
  out.Add(end);
}

// ---- The coordinator's own restart ----

Coordinator::State::State(const DurableState& restored, const Job& job, Time now)
    : phase_(Phase::kAdopting),
      job_(job),
      started_(now) {
  generations_.Restore(restored);
  generations_.Allot(job.used_generation);
  links_.Restore(restored);
  sources_.Restore(restored);
  steps_.Restore(restored, now);
  saves_.Restore(job.checkpoints, restored.given_up_checkpoints);
  roster_.Restore(restored, now);
  transitions_.Restore(roster_);
  adopt_until_ = now + policy().lease + policy().adopt_extra;
  promised_tick_ = NextDeadline();
}

void Coordinator::State::BeginForming(Time now) {
  phase_ = Phase::kActive;
  formation_.Begin(now);
  generations_.Drop();
  sources_.Clear();
}

void Coordinator::State::FinishAdopting(Time now, Outbox& out) {
  Consequence absent;
  for (const auto& [name, worker] : roster_.workers()) {
    if (!worker.seen) {
      absent.losses.push_back({name, "it did not come back to the restarted coordinator"});
    }
  }
  if (!absent.losses.empty() && now < std::max(*adopt_until_, silence_.excused_until())) {
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
  phase_ = Phase::kActive;
  bool intact = held->members.size() == held->plan.members.size() && blame_.empty();
  for (const auto& [name, incarnation] : held->members) {
    const Worker& worker = roster_.at(name);
    intact =
        intact && worker.standing_generation == held->number &&
        (worker.standing == wire::STANDING_TRAINING || worker.standing == wire::STANDING_FINISHED ||
         worker.standing == wire::STANDING_READY);
  }
  if (!intact) {
    Scene scene = MakeScene(now, out);
    return Apply(transitions_.Recover(scene), now, out);
  }
  recoveries_.End();
  out.Log("coordinator_restarted", {{"generation", held->number}});
  for (const auto& [name, incarnation] : held->members) {
    SendGoAgain(roster_.at(name), out);
  }
}

}  // namespace heddle::elastic
