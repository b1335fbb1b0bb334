#include "elastic/control/coordinator.h"

#include <algorithm>
#include <utility>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {
namespace {

// The record of steps is made durable at least so often; what is lost by a crash is told again by
// workers.
constexpr Duration kPersistEvery = std::chrono::seconds(1);

void Earlier(std::optional<Time>& next, std::optional<Time> candidate) {
  if (candidate && (!next || *candidate < *next)) {
    next = candidate;
  }
}

}  // namespace

bool CheckpointDue(const JobPolicy& policy, int64_t step) {
  if (step <= 0) {
    return false;
  }
  return (policy.checkpoint_every > 0 && step % policy.checkpoint_every == 0) ||
         (policy.final_checkpoint && step == policy.total_steps);
}

bool ValidationDue(const JobPolicy& policy, int64_t step) {
  if (step <= 0) {
    return false;
  }
  return (policy.validate_every > 0 && step % policy.validate_every == 0) ||
         (policy.final_validation && step == policy.total_steps);
}

void WrapMessage(const wire::Welcome& m, wire::ToWorker* out) {
  *out->mutable_welcome() = m;
}
void WrapMessage(const wire::Refused& m, wire::ToWorker* out) {
  *out->mutable_refused() = m;
}
void WrapMessage(const wire::Profile& m, wire::ToWorker* out) {
  *out->mutable_profile() = m;
}
void WrapMessage(const wire::Prepare& m, wire::ToWorker* out) {
  *out->mutable_prepare() = m;
}
void WrapMessage(const wire::Stop& m, wire::ToWorker* out) {
  *out->mutable_stop() = m;
}
void WrapMessage(const wire::Halt& m, wire::ToWorker* out) {
  *out->mutable_halt() = m;
}
void WrapMessage(const wire::Start& m, wire::ToWorker* out) {
  *out->mutable_start() = m;
}
void WrapMessage(const wire::Go& m, wire::ToWorker* out) {
  *out->mutable_go() = m;
}
void WrapMessage(const wire::Emulation& m, wire::ToWorker* out) {
  *out->mutable_emulate() = m;
}
void WrapMessage(const wire::Alive& m, wire::ToWorker* out) {
  *out->mutable_alive() = m;
}
void WrapMessage(const wire::Release& m, wire::ToWorker* out) {
  *out->mutable_release() = m;
}
void WrapMessage(const wire::Abandon& m, wire::ToWorker* out) {
  *out->mutable_abandon() = m;
}
void WrapMessage(const wire::MeasureLinks& m, wire::ToWorker* out) {
  *out->mutable_measure_links() = m;
}

// ---- Helpers ----

void Coordinator::State::Log(std::string kind,
                             std::vector<std::pair<std::string, LogEvent::Value>> fields) {
  actions.emplace_back(WriteLog{LogEvent{std::move(kind), std::move(fields)}});
}

void Coordinator::State::SaveState(Time now) {
  DurableState durable;
  durable.job_id = job.id;
  durable.job_yaml = job.yaml;
  durable.secret = job.secret;
  durable.output_folder = job.output_folder;
  durable.generation_counter = generation_counter;
  durable.held = held;
  durable.snapshots = snapshots;
  for (const auto& [name, worker] : workers) {
    durable.workers[name] = {worker.incarnation, worker.host, worker.profile_json,
                             worker.failure_domain};
  }
  durable.known_step = known_step;
  durable.next_worker_number = next_worker_number;
  durable.life = life;
  life_durable = true;
  durable.checkpoints = checkpoints;
  durable.finished = end.has_value() && end->ok;
  durable.failed = end.has_value() && !end->ok ? end->reason : "";
  durable_known_step = known_step;
  persisted_at = now;
  actions.emplace_back(Persist{std::move(durable)});
}

void Coordinator::State::End(bool ok, bool bad_input, const std::string& reason, Time now) {
  if (end) {
    return;
  }
  end = EndJob{ok, bad_input, reason};
  phase = Phase::kDone;
  transition.reset();
  accusations.clear();
  measuring.clear();
  SaveState(now);
  if (!ok) {
    Log("job_failed", {{"reason", reason}});
  }
  for (const auto& [name, worker] : workers) {
    if (ok) {
      wire::Release release;
      release.set_reason(reason);
      SendTo(worker, release);
    } else {
      wire::Abandon abandon;
      abandon.set_reason(reason);
      SendTo(worker, abandon);
    }
  }
  actions.emplace_back(*end);
}

// ---- Events ----

void Coordinator::State::Handle(const CoordinatorEvent& event, Time now) {
  // A coordinator that was itself stopped must not take everyone for dead: what they said meanwhile
  // is still on its way to it.
  if (promised_tick && now - *promised_tick > policy().lease / 4) {
    for (auto& [name, worker] : workers) {
      worker.last_word = std::max(worker.last_word, now - policy().lease / 2);
    }
  }
  std::visit([&](const auto& e) { On(e, now); }, event);
  Advance(now);
  promised_tick = NextDeadline();
}

void Coordinator::State::On(const Submitted& event, Time now) {
  if (phase != Phase::kIdle) {
    return;
  }
  job = event.job;
  checkpoints = event.job.checkpoints;
  SaveState(now);
  Log("job_started", {{"job", job.id},
                      {"steps", policy().total_steps},
                      {"workers", static_cast<int64_t>(policy().initial_workers)}});
  StartForming(now);
  for (auto& [name, worker] : workers) {
    WelcomeWorker(worker, false);
  }
}

void Coordinator::State::On(const Received& event, Time now) {
  const wire::FromWorker& message = event.message;
  if (message.kind_case() == wire::FromWorker::kHello) {
    return OnHello(event.connection, message.hello(), now);
  }
  const auto connection = connections.find(event.connection);
  Worker* worker = connection == connections.end() ? nullptr : Find(connection->second);
  if (worker == nullptr || worker->connection != event.connection) {
    return;
  }
  worker->last_word = now;
  switch (message.kind_case()) {
    case wire::FromWorker::kProfiled:
      return OnProfiled(*worker, message.profiled(), now);
    case wire::FromWorker::kLinksMeasured:
      return OnLinksMeasured(*worker, message.links_measured());
    case wire::FromWorker::kPrepared:
      return OnPrepared(*worker, message.prepared(), now);
    case wire::FromWorker::kStepDone:
      return OnRecords(message.step_done().records(), now);
    case wire::FromWorker::kPeerLost:
      return OnPeerLost(*worker, message.peer_lost(), now);
    case wire::FromWorker::kHalted:
      return OnHalted(*worker, message.halted(), now);
    case wire::FromWorker::kStopped:
      worker->standing = wire::STANDING_STOPPED;
      return OnStopped(*worker, message.stopped().generation(), message.stopped().applied_step(),
                       now);
    case wire::FromWorker::kReady:
      return OnReady(*worker, message.ready(), now);
    case wire::FromWorker::kCheckpointPart:
      return OnCheckpointPart(*worker, message.checkpoint_part(), now);
    case wire::FromWorker::kValidation:
      return OnValidation(message.validation());
    case wire::FromWorker::kHeartbeat:
      return OnHeartbeat(*worker, message.heartbeat(), now);
    case wire::FromWorker::kLeaving:
      return OnLeaving(*worker, message.leaving(), now);
    case wire::FromWorker::kFinished:
      if (held && message.finished().generation() == held->number && IsMember(worker->name)) {
        worker->standing = wire::STANDING_FINISHED;
        finished.insert(worker->name);
        OnStopped(*worker, message.finished().generation(), message.finished().step(), now);
      }
      return;
    case wire::FromWorker::kHello:
    case wire::FromWorker::KIND_NOT_SET:
      return;
  }
}

void Coordinator::State::On(const Disconnected& event, Time now) {
  const auto connection = connections.find(event.connection);
  if (connection == connections.end()) {
    return;
  }
  const std::string name = connection->second;
  connections.erase(connection);
  Worker* worker = Find(name);
  if (worker == nullptr || worker->connection != event.connection) {
    return;
  }
  worker->connection = 0;
  worker->broken_at = now;
  if (phase == Phase::kDone || phase == Phase::kIdle) {
    return Dismiss(name, "");
  }
  // An accusation that names nobody fits whoever breaks away.
  const bool accused =
      std::any_of(accusations.begin(), accusations.end(), [&](const Accusation& accusation) {
        return accusation.accused == name || (accusation.accused.empty() && IsMember(name));
      });
  if (accused) {
    Lose(name, "its connections broke", now);
  }
}

void Coordinator::State::On(const ProcessExited& event, Time now) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || (worker->pid != event.pid && worker->seen)) {
    return;
  }
  if (phase == Phase::kDone || phase == Phase::kIdle) {
    return Dismiss(event.worker, "");
  }
  Lose(event.worker, event.reason, now);
}

void Coordinator::State::On(const CancelRequested& event, Time now) {
  if (phase != Phase::kDone && phase != Phase::kIdle) {
    End(false, false, event.reason, now);
  }
}

void Coordinator::State::On(const Ticked& /*event*/, Time now) {
  if (phase != Phase::kDone) {
    CheckLeases(now);
  }
}

// Everything that waits for a time or a condition rather than for one message.
void Coordinator::State::Advance(Time now) {
  if (phase == Phase::kAdopting) {
    CheckAccusations(now);
    FinishAdopting(now);
  }
  if (phase == Phase::kForming || phase == Phase::kRunning) {
    ScheduleProfiles(now);
    CheckMeasurements(now);
    CheckAccusations(now);
    CheckStageDeadline(now);
    LeaveHaltWhenComplete(now);
    FormIfReady(now);
    FinishIfDone(now);
    ConsiderChange(now);
  }
  if (phase == Phase::kRunning && known_step > durable_known_step &&
      (!persisted_at || now - *persisted_at >= kPersistEvery)) {
    SaveState(now);
  }
  if (list_changed) {
    list_changed = false;
    ListWorkers list;
    for (const auto& [name, worker] : workers) {
      if (worker.welcomed || phase == Phase::kIdle) {
        list.workers.push_back({name, worker.pid, worker.metrics_address, worker.host});
      }
    }
    actions.emplace_back(std::move(list));
  }
}

std::optional<Time> Coordinator::State::NextDeadline() const {
  std::optional<Time> next;
  if (phase == Phase::kDone) {
    return next;
  }
  for (const auto& [name, worker] : workers) {
    if (!worker.seen) {
      continue;
    }
    Earlier(next, worker.broken_at ? std::min(*worker.broken_at + policy().reconnect_grace,
                                              worker.last_word + policy().lease)
                                   : worker.last_word + policy().lease);
    Earlier(next, worker.profiling_until);
  }
  for (const Accusation& accusation : accusations) {
    Earlier(next, accusation.at + policy().probe);
  }
  for (const auto& [request, measurement] : measuring) {
    Earlier(next, measurement.deadline);
  }
  Earlier(next, links_until);
  if (transition) {
    Earlier(next, transition->deadline);
    if (transition->stage == Transition::Stage::kHalt && transition->awaited.empty()) {
      Earlier(next, transition->coalesce_until);
    }
    if (transition->stuck_since && policy().paused_timeout > Duration(0)) {
      Earlier(next, *transition->stuck_since + policy().paused_timeout);
    }
  }
  Earlier(next, adopt_until);
  if (phase == Phase::kForming && forming_since && !transition) {
    if (!forming_late) {
      Earlier(next, *forming_since + policy().formation_timeout);
    } else if (policy().paused_timeout > Duration(0)) {
      Earlier(next, *forming_since + policy().formation_timeout + policy().paused_timeout);
    }
  }
  if (finished_since) {
    Earlier(next, *finished_since + policy().stop_timeout);
  }
  if (phase == Phase::kRunning && known_step > durable_known_step && persisted_at) {
    Earlier(next, *persisted_at + kPersistEvery);
  }
  return next;
}

// ---- The machine ----

Coordinator::Coordinator(int64_t generation_counter) : state_(std::make_unique<State>()) {
  state_->generation_counter = generation_counter;
}

Coordinator::Coordinator(const DurableState& restored, const Job& job, Time now)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.job = job;
  s.started = now;
  s.resumed = true;
  s.generation_counter = restored.generation_counter;
  s.life = restored.life + 1;
  s.held = restored.held;
  s.snapshots = restored.snapshots;
  s.known_step = s.durable_known_step = restored.known_step;
  s.persisted_at = now;
  s.next_worker_number = restored.next_worker_number;
  s.checkpoints = job.checkpoints;
  for (const auto& [name, stored] : restored.workers) {
    Worker& worker = s.workers[name];
    worker.name = name;
    worker.incarnation = stored.incarnation;
    worker.host = stored.host;
    worker.failure_domain = stored.failure_domain;
    worker.profile_json = stored.profile_json;
    worker.seen = false;
    worker.considered = true;
    worker.last_word = now;
  }
  s.phase = Phase::kAdopting;
  s.adopt_until = now + s.policy().lease + s.policy().adopt_extra;
  s.promised_tick = s.NextDeadline();
}

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
  state_->actions.clear();
  state_->Handle(event, now);
  return std::exchange(state_->actions, {});
}

std::optional<Time> Coordinator::NextDeadline() const {
  return state_->NextDeadline();
}
wire::JobStatus Coordinator::StatusAt(Time now) const {
  return state_->StatusAt(now);
}
Status Coordinator::CheckInvariants() const {
  return state_->CheckInvariants();
}

}  // namespace heddle::elastic
