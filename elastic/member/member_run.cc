// Start, go, and what happens while a worker runs.
#include <algorithm>
#include <utility>

#include "elastic/member/member_state.h"

namespace heddle::elastic {
namespace {

constexpr size_t kMaxUnheardParts = 4;
constexpr size_t kMaxUnheardValidations = 16;

}  // namespace

// ---- Start and go ----

void Member::State::OnStart(const wire::Start& message) {
  const int64_t generation = message.generation();
  if (generation < fence || running || !prepare || prepare->generation() != generation) {
    return;
  }
  if (start && start->generation() >= generation) {
    if (ready && ready->generation() == generation) {
      Say(*ready);
    }
    return;
  }
  if (staged_generation > 0) {
    if (message.has_held() && message.held().generation() == staged_generation) {
      Adopt();
      held_generation = staged_generation;
      applied_step = start->applied_step();
    } else {
      actions.emplace_back(DiscardState{staged_generation});
    }
    staged_generation = 0;
  }
  start = message;
  const bool holds = message.has_held() && message.held().generation() == held_generation &&
                     std::find(message.held().workers().begin(), message.held().workers().end(),
                               identity.name) != message.held().workers().end();
  if (holds && message.has_settle() && message.settle().step() == applied_step + 1) {
    actions.emplace_back(SettleStep{message.settle().step(), message.settle().norm()});
    applied_step = message.settle().step();
    norm = message.settle().norm();
    if (voted_record) {
      AddRecord(*voted_record);
    }
  }
  voted = false;
  voted_record.reset();
  ForgetRecordsAfter(message.applied_step());
  standing = wire::STANDING_MOVING;
  standing_generation = generation;
  stopped.reset();
  halted.reset();
  finished.reset();
  ready.reset();
  actions.emplace_back(
      MoveState{message, *prepare, holds ? message.held().plan_json() : std::string()});
}

// Snapshots of steps that are run again are of another history.
void Member::State::Adopt() {
  actions.emplace_back(AdoptState{staged_generation});
  std::erase_if(replicas, [&](const wire::Halted::Replicas& held) {
    return held.step() > start->applied_step();
  });
}

void Member::State::On(const SnapshotsHeld& event, Time /*now*/) {
  replicas = event.replicas;
}

void Member::State::On(const StateMoved& event, Time /*now*/) {
  if (standing != wire::STANDING_MOVING || !start || start->generation() != event.generation) {
    return;
  }
  if (event.status.ok()) {
    staged_generation = event.generation;
  }
  if (halt_wanted) {
    return AnswerHalt();
  }
  standing = event.status.ok() ? wire::STANDING_READY : wire::STANDING_HALTED;
  ready.emplace();
  ready->set_generation(event.generation);
  ready->set_seconds(event.seconds);
  for (const auto& [kind, bytes] : event.bytes) {
    (*ready->mutable_moved_bytes())[kind] = bytes;
  }
  if (!event.status.ok()) {
    const bool unreadable = (start->has_checkpoint_step() || start->has_replicas()) &&
                            (event.status.code() == StatusCode::kDataLoss ||
                             event.status.code() == StatusCode::kNotFound);
    if (!unreadable && !IsDataPlaneError(event.status)) {
      return LeaveAtOnce(event.status.ToString(), 1);
    }
    ready->set_source_unreadable(unreadable);
    ready->set_error(event.status.ToString());
    ready->set_peer(event.peer);
  }
  Say(*ready);
}

void Member::State::OnGo(const wire::Go& message) {
  if (standing != wire::STANDING_READY || staged_generation != message.generation()) {
    return;
  }
  Adopt();
  rank = -1;
  for (int i = 0; i < prepare->members_size(); ++i) {
    if (prepare->members(i).name() == identity.name) {
      rank = i;
    }
  }
  if (rank < 0) {  // It only gave its state away.
    held_generation = applied_step = staged_generation = 0;
    records.clear();
    standing = wire::STANDING_IDLE;
    return;
  }
  held_generation = staged_generation;
  staged_generation = 0;
  applied_step = start->applied_step();
  standing = wire::STANDING_TRAINING;
  running = true;
  window = 0;
  open_steps = 0;
  open_seconds = open_busy = open_predicted = 0;
  actions.emplace_back(
      RunSteps{message.generation(), applied_step, start->save(), start->validate()});
}

// ---- Steps ----

void Member::State::CountWindow(const StepApplied& event) {
  ++open_steps;
  open_seconds += event.record.seconds();
  open_busy += event.busy_seconds;
  open_predicted += event.predicted_busy_seconds;
  if (open_steps >= options.window_steps && open_seconds >= Seconds(options.window_time)) {
    ++window;
    window_busy = open_busy;
    window_predicted = open_predicted;
    open_steps = 0;
    open_seconds = open_busy = open_predicted = 0;
  }
}

void Member::State::On(const StepApplied& event, Time /*now*/) {
  applied_step = event.record.step();
  norm = event.record.gradient_norm();
  AddRecord(event.record);
  CountWindow(event);
  if (rank == 0) {
    wire::StepDone message;
    *message.add_records() = event.record;
    Say(message);
  }
}

void Member::State::On(const RunEnded& event, Time /*now*/) {
  if (!running || event.generation != standing_generation) {
    return;
  }
  running = false;
  applied_step = event.applied_step;
  voted = event.voted;
  voted_record = event.voted_record;
  if (event.how == RunEnded::How::kFailed && !IsDataPlaneError(event.status)) {
    return LeaveAtOnce(event.status.ToString(), 1);
  }
  if (halt_wanted) {
    return AnswerHalt();
  }
  switch (event.how) {
    case RunEnded::How::kStopped:
      standing = wire::STANDING_STOPPED;
      stopped.emplace();
      stopped->set_generation(event.generation);
      stopped->set_applied_step(applied_step);
      return Say(*stopped);
    case RunEnded::How::kFinished:
      standing = wire::STANDING_FINISHED;
      finished.emplace();
      finished->set_generation(event.generation);
      finished->set_step(applied_step);
      return Say(*finished);
    case RunEnded::How::kFailed:
      standing = wire::STANDING_HALTED;
      if (!peer_lost) {
        peer_lost.emplace();
        peer_lost->set_generation(event.generation);
        peer_lost->set_peer(event.peer);
        peer_lost->set_reason(event.status.ToString());
        Say(*peer_lost);
      }
      return;
  }
}

void Member::State::On(const PeerSeenLost& event, Time /*now*/) {
  if (event.generation < fence || event.generation != standing_generation || peer_lost ||
      halt_wanted) {
    return;
  }
  peer_lost.emplace();
  peer_lost->set_generation(event.generation);
  peer_lost->set_peer(event.peer);
  peer_lost->set_reason(event.reason);
  Say(*peer_lost);
}

void Member::State::On(const Saved& event, Time /*now*/) {
  if (!event.part.skipped()) {  // A part is said again to a coordinator that comes back.
    parts.push_back(event.part);
  }
  while (parts.size() > kMaxUnheardParts) {
    parts.pop_front();
  }
  Say(event.part);
}

void Member::State::On(const Validated& event, Time /*now*/) {
  wire::Validation message;
  message.set_step(event.step);
  message.set_loss(event.loss);
  validations.push_back(message);
  while (validations.size() > kMaxUnheardValidations) {
    validations.pop_front();
  }
  Say(message);
}

void Member::State::On(const TerminateRequested& event, Time /*now*/) {
  if (!leaving.empty()) {
    return LeaveAtOnce(event.reason + ", twice", 1);
  }
  if (!job) {
    return Exit(0, event.reason);
  }
  leaving = event.reason;
  wire::Leaving message;
  message.set_reason(event.reason);
  Say(message);
}

void Member::State::On(const MemberTicked& /*event*/, Time now) {
  if (connected && now >= next_heartbeat) {
    next_heartbeat = now + heartbeat;
    SendToCoordinator action;
    wire::Heartbeat& message = *action.message.mutable_heartbeat();
    message.set_generation(held_generation);
    message.set_applied_step(applied_step);
    message.set_standing(standing);
    message.set_window(window);
    message.set_busy_seconds(window_busy);
    message.set_predicted_busy_seconds(window_predicted);
    actions.emplace_back(std::move(action));
  }
  if (!running && now - last_word >= Patience()) {
    const auto seconds = static_cast<int64_t>(Seconds(Patience()));
    Exit(1, refusal.empty()
                ? fmt::format("no word from the coordinator for {} s", seconds)
                : fmt::format("refused by the coordinator for {} s: {}", seconds, refusal));
  }
}

}  // namespace heddle::elastic
