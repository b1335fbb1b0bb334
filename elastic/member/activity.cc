#include "elastic/member/activity.h"

#include <utility>

namespace heddle::elastic {
namespace {

// True for errors that leave the held state intact, so that the coordinator decides how to go on.
bool IsDataPlaneError(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted ||
         status.code() == StatusCode::kDeadlineExceeded;
}

}  // namespace

wire::Standing Activity::standing() const {
  return std::visit([](const auto& stage) { return stage.kStanding; }, stage_);
}

// ---- Commands ----

void Activity::Stop(const wire::Stop& message, MemberOutbox& out) const {
  if (IsTraining() && generation() == message.generation()) {
    out.Add(RequestStop{message.generation()});
  } else if (const auto* stopped = In<Stopped>();
             stopped != nullptr && stopped->answer.generation() == message.generation()) {
    out.Send(stopped->answer);
  } else if (const auto* finished = In<Finished>();
             finished != nullptr && finished->answer.generation() == message.generation()) {
    out.Send(finished->answer);
  }
}

void Activity::Save(const wire::Save& message, MemberOutbox& out) const {
  const auto* stopped = In<Stopped>();
  if (stopped != nullptr && stopped->answer.generation() == message.generation() &&
      stopped->answer.applied_step() == message.step()) {
    out.Add(SaveState{message.generation(), message.step()});
  }
}

void Activity::Halt(const wire::Halt& message,
                    const HeldState& held,
                    const Reports& reports,
                    MemberOutbox& out) {
  if (message.generation() <= fence_) {
    if (halted() != nullptr && halted()->generation() == message.generation()) {
      out.Send(*halted());
    }
    return;
  }
  fence_ = message.generation();
  halt_owed_ = message.known_step();
  ready_.reset();
  peer_lost_.reset();
  out.Add(AbortBelow{message.generation(), message.reason()});
  if (!IsTraining() && In<Moving>() == nullptr) {
    AnswerHalt(held, reports, out);
  }
}

const wire::Halted* Activity::halted() const {
  if (const auto* idle = In<Idle>()) {
    return idle->answer ? &*idle->answer : nullptr;
  }
  const auto* halted = In<Halted>();
  return halted != nullptr && halted->answer ? &*halted->answer : nullptr;
}

void Activity::AnswerHalt(const HeldState& held, const Reports& reports, MemberOutbox& out) {
  wire::Halted answer;
  answer.set_generation(fence_);
  *answer.mutable_records() = reports.StepsAfter(*std::exchange(halt_owed_, std::nullopt));
  held.Describe(answer);
  out.Send(answer);
  if (held.generation() > 0) {
    stage_ = Halted{std::move(answer)};
  } else {
    stage_ = Idle{std::move(answer)};
  }
}

bool Activity::Start(const wire::Start& message, MemberOutbox& out) {
  if (message.generation() < fence_ || IsTraining()) {
    return false;
  }
  if (generation() >= message.generation()) {
    if (ready_ && ready_->generation() == message.generation()) {
      out.Send(*ready_);
    }
    return false;
  }
  start_ = message;
  ready_.reset();
  halt_owed_.reset();  // Who asked has begun anew and not asked again: nobody waits for the answer.
  stage_ = Moving();
  return true;
}

bool Activity::AwaitsGo(int64_t generation) const {
  return In<Ready>() != nullptr && start_.generation() == generation;
}

void Activity::Train(int rank, MemberOutbox& out) {
  stage_ = Training{rank};
  out.Add(RunSteps{generation(), start_.applied_step(), start_.save(), start_.validate()});
}

// ---- The end of moves and runs ----

void Activity::EndMove(const StateMoved& event,
                       HeldState& held,
                       const Reports& reports,
                       MemberOutbox& out) {
  if (In<Moving>() == nullptr || generation() != event.generation) {
    return;
  }
  if (event.status.ok()) {
    held.Stage(event.generation, start_.applied_step());
  }
  if (halt_owed_) {
    return AnswerHalt(held, reports, out);
  }
  ready_.emplace();
  ready_->set_generation(event.generation);
  ready_->set_seconds(event.seconds);
  ready_->set_transfer_seconds(event.transfer_seconds);
  for (const auto& [kind, bytes] : event.bytes) {
    (*ready_->mutable_moved_bytes())[kind] = bytes;
  }
  if (event.status.ok()) {
    stage_ = Ready();
    *ready_->mutable_certificate() = event.certificate;
  } else {
    stage_ = Halted();
    const bool unreadable = (start_.has_checkpoint_step() || start_.has_replicas()) &&
                            (event.status.code() == StatusCode::kDataLoss ||
                             event.status.code() == StatusCode::kNotFound);
    if (!unreadable && event.refused.empty() && !IsDataPlaneError(event.status)) {
      return out.LeaveAtOnce(event.status.ToString(), 1);
    }
    ready_->set_source_unreadable(unreadable);
    ready_->mutable_refused()->Assign(event.refused.begin(), event.refused.end());
    ready_->set_error(event.status.ToString());
    ready_->set_peer(event.peer);
  }
  out.Send(*ready_);
}

void Activity::EndRun(const RunEnded& event,
                      HeldState& held,
                      const Reports& reports,
                      MemberOutbox& out) {
  if (!IsTraining() || event.generation != generation()) {
    return;
  }
  held.EndRun(event);
  if (event.how == RunEnded::How::kFailed && !IsDataPlaneError(event.status)) {
    return out.LeaveAtOnce(event.status.ToString(), 1);
  }
  if (halt_owed_) {
    return AnswerHalt(held, reports, out);
  }
  switch (event.how) {
    case RunEnded::How::kStopped: {
      wire::Stopped answer;
      answer.set_generation(event.generation);
      answer.set_applied_step(event.applied_step);
      out.Send(answer);
      stage_ = Stopped{std::move(answer)};
      return;
    }
    case RunEnded::How::kFinished: {
      wire::Finished answer;
      answer.set_generation(event.generation);
      answer.set_step(event.applied_step);
      out.Send(answer);
      stage_ = Finished{std::move(answer)};
      return;
    }
    case RunEnded::How::kFailed:
      stage_ = Halted();
      return Accuse(event.peer, event.status.ToString(), out);
  }
}

void Activity::AccusePeer(const PeerSeenLost& event, MemberOutbox& out) {
  if (event.generation >= fence_ && event.generation == generation() && !halt_owed_) {
    Accuse(event.peer, event.reason, out);
  }
}

void Activity::Accuse(const std::string& peer, const std::string& reason, MemberOutbox& out) {
  if (!peer_lost_) {
    peer_lost_.emplace();
    peer_lost_->set_generation(generation());
    peer_lost_->set_peer(peer);
    peer_lost_->set_reason(reason);
    out.Send(*peer_lost_);
  }
}

void Activity::Resend(MemberOutbox& out) const {
  out.Send(peer_lost_);
  if (const auto* stopped = In<Stopped>()) {
    out.Send(stopped->answer);
  } else if (halted() != nullptr) {
    out.Send(*halted());
  }
  out.Send(ready_);
  if (const auto* finished = In<Finished>()) {
    out.Send(finished->answer);
  }
}

}  // namespace heddle::elastic
