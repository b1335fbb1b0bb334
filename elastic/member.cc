#include "elastic/member.h"

#include <algorithm>
#include <utility>

#include "elastic/coordinator.h"
#include "elastic/member_state.h"

namespace heddle::elastic {
namespace {

constexpr size_t kMaxUnheardParts = 4;
constexpr size_t kMaxUnheardValidations = 16;

// One overload a message, so that Say can wrap any of them.
void Wrap(const wire::Profiled& m, wire::FromWorker* out) {
  *out->mutable_profiled() = m;
}
void Wrap(const wire::Prepared& m, wire::FromWorker* out) {
  *out->mutable_prepared() = m;
}
void Wrap(const wire::StepDone& m, wire::FromWorker* out) {
  *out->mutable_step_done() = m;
}
void Wrap(const wire::PeerLost& m, wire::FromWorker* out) {
  *out->mutable_peer_lost() = m;
}
void Wrap(const wire::Halted& m, wire::FromWorker* out) {
  *out->mutable_halted() = m;
}
void Wrap(const wire::Stopped& m, wire::FromWorker* out) {
  *out->mutable_stopped() = m;
}
void Wrap(const wire::Ready& m, wire::FromWorker* out) {
  *out->mutable_ready() = m;
}
void Wrap(const wire::CheckpointPart& m, wire::FromWorker* out) {
  *out->mutable_checkpoint_part() = m;
}
void Wrap(const wire::Validation& m, wire::FromWorker* out) {
  *out->mutable_validation() = m;
}
void Wrap(const wire::Leaving& m, wire::FromWorker* out) {
  *out->mutable_leaving() = m;
}
void Wrap(const wire::Finished& m, wire::FromWorker* out) {
  *out->mutable_finished() = m;
}

// Errors after which the state held is intact and the coordinator decides how to go on.
bool IsDataPlaneError(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted ||
         status.code() == StatusCode::kDeadlineExceeded;
}

bool IsEmpty(const wire::Emulation& emulation) {
  return emulation.speed() == 0 && emulation.memory_bytes() == 0 &&
         emulation.link_bytes_per_second() == 0;
}

}  // namespace

template <typename T>
void Member::State::Say(const T& message) {
  if (!connected || !welcomed) {
    return;
  }
  SendToCoordinator action;
  Wrap(message, &action.message);
  actions.emplace_back(std::move(action));
}

void Member::State::Exit(int code, std::string reason) {
  exited = true;
  actions.emplace_back(ExitWorker{code, std::move(reason)});
}

void Member::State::LeaveAtOnce(const std::string& reason, int code) {
  wire::Leaving message;
  message.set_reason(reason);
  message.set_at_once(true);
  Say(message);
  Exit(code, reason);
}

void Member::State::ForgetRecordsThrough(int64_t step) {
  while (!records.empty() && records.front().step() <= step) {
    records.pop_front();
  }
}

void Member::State::ForgetRecordsAfter(int64_t step) {
  while (!records.empty() && records.back().step() > step) {
    records.pop_back();
  }
}

void Member::State::AddRecord(const wire::StepRecord& record) {
  ForgetRecordsAfter(record.step() - 1);
  records.push_back(record);
  while (records.size() > options.max_records) {
    records.pop_front();
  }
}

void Member::State::SayRecordsAfter(int64_t step) {
  wire::StepDone message;
  for (const wire::StepRecord& record : records) {
    if (record.step() > step) {
      *message.add_records() = record;
    }
  }
  if (message.records_size() > 0) {
    Say(message);
  }
}

void Member::State::SayAgain(int64_t known_step) {
  SayRecordsAfter(known_step);
  const auto again = [this](const auto& message) {
    if (message) {
      Say(*message);
    }
  };
  again(profiled);
  again(prepared);
  for (const wire::CheckpointPart& part : parts) {
    Say(part);
  }
  for (const wire::Validation& validation : validations) {
    Say(validation);
  }
  again(peer_lost);
  again(stopped);
  again(halted);
  again(ready);
  again(finished);
  if (!leaving.empty()) {
    wire::Leaving message;
    message.set_reason(leaving);
    Say(message);
  }
}

Duration Member::State::Patience() const {
  return job ? FromSeconds(job->coordinator_wait_seconds()) : options.welcome_timeout;
}

// ---- The stream ----

void Member::State::On(const StreamUp& /*event*/, Time now) {
  connected = true;
  welcomed = false;
  next_heartbeat = now + heartbeat;
  SendToCoordinator action;
  wire::Hello& hello = *action.message.mutable_hello();
  hello.set_name(identity.name);
  hello.set_incarnation(identity.incarnation);
  hello.set_host(identity.host);
  hello.set_pid(identity.pid);
  hello.set_data_address(identity.data_address);
  hello.set_metrics_address(identity.metrics_address);
  hello.set_protocol_version(kProtocolVersion);
  hello.set_generation(held_generation);
  hello.set_applied_step(applied_step);
  hello.set_standing(standing);
  hello.set_standing_generation(standing_generation);
  hello.set_staged_generation(staged_generation);
  *hello.mutable_emulation() = identity.emulation;
  actions.emplace_back(std::move(action));
}

void Member::State::On(const StreamDown& /*event*/, Time /*now*/) {
  connected = false;
  welcomed = false;
}

void Member::State::On(const FromCoordinator& event, Time now) {
  last_word = now;
  const wire::ToWorker& message = event.message;
  switch (message.kind_case()) {
    case wire::ToWorker::kWelcome:
      return OnWelcome(message.welcome());
    case wire::ToWorker::kRefused:
      if (message.refused().permanent()) {
        Exit(2, "refused by the coordinator: " + message.refused().reason());
      }
      return;
    case wire::ToWorker::kProfile:
      return OnProfile();
    case wire::ToWorker::kPrepare:
      return OnPrepare(message.prepare());
    case wire::ToWorker::kStop:
      return OnStop(message.stop());
    case wire::ToWorker::kHalt:
      return OnHalt(message.halt());
    case wire::ToWorker::kStart:
      return OnStart(message.start());
    case wire::ToWorker::kGo:
      return OnGo(message.go());
    case wire::ToWorker::kEmulate:
      identity.emulation = message.emulate();
      actions.emplace_back(SetEmulation{message.emulate()});
      return;
    case wire::ToWorker::kAlive:
      return ForgetRecordsThrough(std::min(message.alive().known_step(), applied_step));
    case wire::ToWorker::kRelease:
      return Exit(0, "released: " + message.release().reason());
    case wire::ToWorker::kAbandon:
      return Exit(1, "given up by the coordinator: " + message.abandon().reason());
    case wire::ToWorker::KIND_NOT_SET:
      return;
  }
}

void Member::State::OnWelcome(const wire::Welcome& welcome) {
  welcomed = true;
  if (job && job->job_id() != welcome.job_id()) {
    return Exit(1, "the coordinator runs another job now");
  }
  identity.name = welcome.name();
  if (job) {
    return SayAgain(welcome.known_step());
  }
  job = welcome;
  if (welcome.heartbeat_seconds() > 0) {
    heartbeat = FromSeconds(welcome.heartbeat_seconds());
  }
  actions.emplace_back(ApplyJob{welcome});
  if (IsEmpty(identity.emulation)) {
    identity.emulation = welcome.emulation();
  }
  actions.emplace_back(SetEmulation{identity.emulation});
  if (!leaving.empty()) {
    SayAgain(welcome.known_step());
  }
}

void Member::State::On(const JobApplied& event, Time /*now*/) {
  if (!event.status.ok()) {
    return LeaveAtOnce(event.status.ToString(),
                       event.status.code() == StatusCode::kInvalidArgument ? 2 : 1);
  }
  job_applied = true;
  if (profile_wanted) {
    OnProfile();
  }
}

// ---- Profile and plan ----

void Member::State::OnProfile() {
  profile_wanted = true;
  if (profiled) {
    return Say(*profiled);
  }
  if (job_applied && !profiling) {
    profiling = true;
    actions.emplace_back(MeasureProfile{});
  }
}

void Member::State::On(const ProfileMeasured& event, Time /*now*/) {
  profiling = false;
  if (!event.status.ok()) {
    return LeaveAtOnce("profiling: " + event.status.ToString(), 1);
  }
  profiled.emplace();
  profiled->set_profile_json(event.profile_json);
  Say(*profiled);
}

void Member::State::OnPrepare(const wire::Prepare& message) {
  if (message.generation() < fence) {
    return;
  }
  if (prepare && message.generation() <= prepare->generation()) {
    if (prepared && prepared->generation() == message.generation()) {
      Say(*prepared);
    }
    return;
  }
  prepare = message;
  prepared.reset();
  const bool takes_part =
      std::any_of(message.members().begin(), message.members().end(),
                  [&](const wire::Member& member) { return member.name() == identity.name; });
  if (takes_part) {
    actions.emplace_back(LowerPlan{message.generation(), message.plan_json()});
    return;
  }
  prepared.emplace();
  prepared->set_generation(message.generation());
  Say(*prepared);
}

void Member::State::On(const PlanLowered& event, Time /*now*/) {
  if (!prepare || prepare->generation() != event.generation) {
    return;
  }
  prepared.emplace();
  prepared->set_generation(event.generation);
  prepared->set_program_hash(event.program_hash);
  if (!event.status.ok()) {
    prepared->set_error(event.status.ToString());
  }
  Say(*prepared);
}

// ---- Stop and halt ----

void Member::State::OnStop(const wire::Stop& message) {
  if (Trains() && standing_generation == message.generation()) {
    actions.emplace_back(RequestStop{message.generation()});
  } else if (stopped && stopped->generation() == message.generation()) {
    Say(*stopped);
  } else if (finished && finished->generation() == message.generation()) {
    Say(*finished);
  }
}

void Member::State::OnHalt(const wire::Halt& message) {
  if (message.generation() <= fence) {
    if (halted && halted->generation() == message.generation()) {
      Say(*halted);
    }
    return;
  }
  fence = message.generation();
  halt_known_step = message.known_step();
  halt_wanted = true;
  halted.reset();
  ready.reset();
  peer_lost.reset();
  if (prepare && prepare->generation() < fence) {
    prepare.reset();
    prepared.reset();
  }
  actions.emplace_back(AbortBelow{message.generation(), message.reason()});
  if (!running && standing != wire::STANDING_MOVING) {
    AnswerHalt();
  }
}

void Member::State::AnswerHalt() {
  halt_wanted = false;
  standing = held_generation > 0 ? wire::STANDING_HALTED : wire::STANDING_IDLE;
  stopped.reset();
  finished.reset();
  halted.emplace();
  halted->set_generation(fence);
  halted->set_held_generation(held_generation);
  halted->set_applied_step(applied_step);
  halted->set_norm_step(applied_step);
  halted->set_norm(norm);
  halted->set_voted(voted);
  if (voted_record) {
    halted->set_norm_step(voted_record->step());
    halted->set_norm(voted_record->gradient_norm());
  }
  for (const wire::StepRecord& record : records) {
    if (record.step() > halt_known_step) {
      *halted->add_records() = record;
    }
  }
  if (voted_record) {
    *halted->add_records() = *voted_record;
  }
  if (staged_generation > 0) {
    halted->set_staged_generation(staged_generation);
    halted->set_staged_step(start->applied_step());
  }
  Say(*halted);
}

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
      actions.emplace_back(AdoptState{staged_generation});
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
    const bool unreadable =
        start->has_checkpoint_step() && (event.status.code() == StatusCode::kDataLoss ||
                                         event.status.code() == StatusCode::kNotFound);
    if (!unreadable && !IsDataPlaneError(event.status)) {
      return LeaveAtOnce(event.status.ToString(), 1);
    }
    ready->set_checkpoint_unreadable(unreadable);
    ready->set_error(event.status.ToString());
    ready->set_peer(event.peer);
  }
  Say(*ready);
}

void Member::State::OnGo(const wire::Go& message) {
  if (standing != wire::STANDING_READY || staged_generation != message.generation()) {
    return;
  }
  actions.emplace_back(AdoptState{staged_generation});
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
  parts.push_back(event.part);
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
    Exit(1, "no word from the coordinator for " +
                std::to_string(static_cast<int64_t>(Seconds(Patience()))) + " s");
  }
}

// ---- The machine ----

Member::Member(MemberIdentity identity, MemberOptions options, Time now)
    : state_(std::make_unique<State>()) {
  state_->identity = std::move(identity);
  state_->options = options;
  state_->last_word = now;
  state_->next_heartbeat = now;
}

Member::Member(const Member& other) : state_(std::make_unique<State>(*other.state_)) {}
Member& Member::operator=(const Member& other) {
  if (this != &other) {
    state_ = std::make_unique<State>(*other.state_);
  }
  return *this;
}
Member::Member(Member&& other) noexcept = default;
Member& Member::operator=(Member&& other) noexcept = default;
Member::~Member() = default;

std::vector<MemberAction> Member::Handle(const MemberEvent& event, Time now) {
  state_->actions.clear();
  if (!state_->exited) {
    std::visit([&](const auto& e) { state_->On(e, now); }, event);
  }
  return std::exchange(state_->actions, {});
}

std::optional<Time> Member::NextDeadline() const {
  if (state_->exited) {
    return std::nullopt;
  }
  std::optional<Time> next;
  if (state_->connected) {
    next = state_->next_heartbeat;
  }
  if (!state_->running) {
    const Time end = state_->last_word + state_->Patience();
    next = next ? std::min(*next, end) : end;
  }
  return next;
}

const std::string& Member::name() const {
  return state_->identity.name;
}
wire::Standing Member::standing() const {
  return state_->standing;
}
int64_t Member::held_generation() const {
  return state_->held_generation;
}
int64_t Member::applied_step() const {
  return state_->applied_step;
}

}  // namespace heddle::elastic
