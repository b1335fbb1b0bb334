#include "elastic/member/member.h"

#include <algorithm>
#include <utility>

#include "elastic/member/member_state.h"
#include "elastic/protocol/version.h"

namespace heddle::elastic {
namespace {

bool IsEmpty(const wire::Emulation& emulation) {
  return emulation.speed() == 0 && emulation.memory_bytes() == 0 &&
         emulation.link_bytes_per_second() == 0;
}

}  // namespace

void WrapMessage(const wire::Profiled& m, wire::FromWorker* out) {
  *out->mutable_profiled() = m;
}
void WrapMessage(const wire::LinksMeasured& m, wire::FromWorker* out) {
  *out->mutable_links_measured() = m;
}
void WrapMessage(const wire::Prepared& m, wire::FromWorker* out) {
  *out->mutable_prepared() = m;
}
void WrapMessage(const wire::StepDone& m, wire::FromWorker* out) {
  *out->mutable_step_done() = m;
}
void WrapMessage(const wire::PeerLost& m, wire::FromWorker* out) {
  *out->mutable_peer_lost() = m;
}
void WrapMessage(const wire::Halted& m, wire::FromWorker* out) {
  *out->mutable_halted() = m;
}
void WrapMessage(const wire::Stopped& m, wire::FromWorker* out) {
  *out->mutable_stopped() = m;
}
void WrapMessage(const wire::Ready& m, wire::FromWorker* out) {
  *out->mutable_ready() = m;
}
void WrapMessage(const wire::CheckpointPart& m, wire::FromWorker* out) {
  *out->mutable_checkpoint_part() = m;
}
void WrapMessage(const wire::Validation& m, wire::FromWorker* out) {
  *out->mutable_validation() = m;
}
void WrapMessage(const wire::Leaving& m, wire::FromWorker* out) {
  *out->mutable_leaving() = m;
}
void WrapMessage(const wire::Finished& m, wire::FromWorker* out) {
  *out->mutable_finished() = m;
}

bool IsDataPlaneError(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted ||
         status.code() == StatusCode::kDeadlineExceeded;
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
  again(links_measured);
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
  hello.set_network(identity.network);
  hello.set_probe_address(identity.probe_address);
  hello.set_failure_domain(identity.failure_domain);
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
  const wire::ToWorker& message = event.message;
  if (message.has_refused()) {
    return OnRefused(message.refused());
  }
  last_word = now;
  refusal.clear();
  switch (message.kind_case()) {
    case wire::ToWorker::kWelcome:
      return OnWelcome(message.welcome());
    case wire::ToWorker::kProfile:
      return OnProfile();
    case wire::ToWorker::kMeasureLinks:
      return OnMeasureLinks(message.measure_links());
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
    case wire::ToWorker::kRefused:
    case wire::ToWorker::KIND_NOT_SET:
      return;
  }
}

void Member::State::OnRefused(const wire::Refused& refused) {
  if (refused.permanent()) {
    return Exit(2, "refused by the coordinator: " + refused.reason());
  }
  if (refused.reason() != refusal) {
    refusal = refused.reason();
    actions.emplace_back(NoteRefusal{refusal});
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

void Member::State::OnMeasureLinks(const wire::MeasureLinks& message) {
  if (!job_applied || message.request() < links_request) {
    return;
  }
  if (message.request() > links_request) {
    links_request = message.request();
    links_measured.reset();
    actions.emplace_back(ProbeLinks{message});
  } else if (links_measured) {
    Say(*links_measured);
  }
}

void Member::State::On(const LinksProbed& event, Time /*now*/) {
  if (event.answer.request() == links_request) {
    links_measured = event.answer;
    Say(*links_measured);
  }
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
  for (const wire::Halted::Replicas& held : replicas) {
    *halted->add_replicas() = held;
  }
  Say(*halted);
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
