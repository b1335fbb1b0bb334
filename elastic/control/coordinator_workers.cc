// Workers come, say that they live, and go.
#include <algorithm>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {
namespace {

bool IsEmpty(const wire::Emulation& emulation) {
  return emulation.speed() == 0 && emulation.memory_bytes() == 0 &&
         emulation.link_bytes_per_second() == 0;
}

// Of a host and of a network; what is measured is kept by them.
constexpr size_t kMostNameBytes = 255;

// Names go into file names, labels and lines of text.
bool IsNameSound(const std::string& name) {
  return name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

// What a process says of itself at every connection.
void CopyIdentity(const wire::Hello& hello, Worker& worker) {
  worker.host = hello.host();
  worker.failure_domain = hello.failure_domain();
  worker.pid = hello.pid();
  worker.data_address = hello.data_address();
  worker.metrics_address = hello.metrics_address();
  worker.network = hello.network();
  worker.probe_address = hello.probe_address();
  worker.emulation = hello.emulation();
}

}  // namespace

Worker* Coordinator::State::Find(const std::string& name) {
  const auto found = workers.find(name);
  return found == workers.end() ? nullptr : &found->second;
}

bool Coordinator::State::IsMember(const std::string& name) const {
  return held.has_value() && held->members.count(name) > 0;
}

// ---- Hello ----

void Coordinator::State::Refuse(ConnectionId connection,
                                const std::string& reason,
                                bool permanent) {
  Send action;
  action.connection = connection;
  wire::Refused& refused = *action.message.mutable_refused();
  refused.set_reason(reason);
  refused.set_permanent(permanent);
  actions.emplace_back(std::move(action));
  actions.emplace_back(Close{connection});
}

void Coordinator::State::OnHello(ConnectionId connection, const wire::Hello& hello, Time now) {
  if (hello.protocol_version() != kProtocolVersion) {
    return Refuse(connection,
                  fmt::format("it speaks version {} of the protocol, the coordinator version {}",
                              hello.protocol_version(), kProtocolVersion),
                  true);
  }
  if (hello.incarnation().size() != 16 || !IsNameSound(hello.name())) {
    return Refuse(connection, "its name may hold letters, digits, '-', '_' and '.' only", true);
  }
  if (!IsNameSound(hello.failure_domain())) {
    return Refuse(connection,
                  "its failure domain may hold letters, digits, '-', '_' and '.' only, at most "
                  "64 of them",
                  true);
  }
  if (hello.host().size() > kMostNameBytes || hello.network().size() > kMostNameBytes) {
    return Refuse(connection, "the name of its host or of its network is too long", true);
  }
  if (phase == Phase::kDone) {
    return Refuse(connection, "the job has ended", true);
  }
  if (const auto given_up = gone.find(hello.incarnation()); given_up != gone.end()) {
    return Refuse(connection, "stale worker: it was given up (" + given_up->second + ")", true);
  }
  Worker* known = hello.name().empty() ? nullptr : Find(hello.name());
  if (known != nullptr && known->incarnation == hello.incarnation()) {
    return Return(connection, *known, hello, now);
  }
  if (hello.generation() > 0 || hello.staged_generation() > 0) {
    return Refuse(connection,
                  fmt::format("stale worker: it belongs to generation {}", hello.generation()),
                  true);
  }
  if (known != nullptr) {
    // A process that starts again under its name proves the one before dead, unless that one is
    // heard.
    const bool heard =
        known->seen && known->connection != 0 && now - known->last_word < policy().lease;
    if (heard) {
      return Refuse(connection, "a worker named " + hello.name() + " is connected", false);
    }
    Lose(hello.name(), "another process took its place", now);
  }
  Join(connection, hello, now);
}

void Coordinator::State::Join(ConnectionId connection, const wire::Hello& hello, Time now) {
  std::string name = hello.name();
  while (name.empty() || Find(name) != nullptr) {
    name = "worker-" + std::to_string(next_worker_number++);
  }
  Worker& worker = workers[name];
  worker.name = name;
  worker.incarnation = hello.incarnation();
  CopyIdentity(hello, worker);
  worker.connection = connection;
  worker.last_word = now;
  connections[connection] = name;
  list_changed = true;
  if (phase != Phase::kIdle) {
    SaveState(now);  // A restarted coordinator must know whose the name is.
    WelcomeWorker(worker, false);
  }
}

void Coordinator::State::Return(ConnectionId connection,
                                Worker& worker,
                                const wire::Hello& hello,
                                Time now) {
  if (worker.connection != 0 && worker.connection != connection) {
    connections.erase(worker.connection);
    actions.emplace_back(Close{worker.connection});
  }
  worker.connection = connection;
  worker.broken_at.reset();
  worker.last_word = now;
  worker.seen = true;
  CopyIdentity(hello, worker);
  worker.standing = hello.standing();
  worker.standing_generation = hello.standing_generation();
  worker.applied_step = hello.applied_step();
  connections[connection] = worker.name;
  list_changed = true;
  if (phase != Phase::kIdle) {
    WelcomeWorker(worker, true);
    RepeatCommand(worker, now);
  }
}

void Coordinator::State::WelcomeWorker(Worker& worker, bool again) {
  if (IsEmpty(worker.emulation)) {
    if (const auto found = job.emulation.find(worker.name); found != job.emulation.end()) {
      worker.emulation = found->second;
    }
  }
  if (const auto found = job.failure_domains.find(worker.name);
      worker.failure_domain.empty() && found != job.failure_domains.end()) {
    worker.failure_domain = found->second;
  }
  wire::Welcome welcome;
  welcome.set_name(worker.name);
  welcome.set_job_id(job.id);
  welcome.set_job_yaml(job.yaml);
  welcome.set_secret(job.secret);
  welcome.set_output_folder(job.output_folder);
  *welcome.mutable_emulation() = worker.emulation;
  welcome.set_known_step(known_step);
  welcome.set_again(again);
  welcome.set_heartbeat_seconds(Seconds(policy().heartbeat));
  welcome.set_coordinator_wait_seconds(Seconds(policy().coordinator_wait));
  SendTo(worker, welcome);
  places_changed = true;
  if (!again) {
    // What failed with a worker of its place may go well with this one.
    std::erase_if(measured, [place = PlaceOf(worker)](const auto& entry) {
      return entry.second.empty() && (entry.first.first == place || entry.first.second == place);
    });
    Log("worker_joined", {{"worker", worker.name}, {"host", worker.host}, {"pid", worker.pid}});
  }
  worker.welcomed = true;
  list_changed = true;
}

// Says again what the worker may not have heard, or has not answered.
void Coordinator::State::RepeatCommand(Worker& worker, Time now) {
  if (worker.profiling_until) {
    SendTo(worker, wire::Profile());
  }
  for (const auto& [request, measurement] : measuring) {
    for (const int rank : {0, 1}) {
      if (measurement.workers[static_cast<size_t>(rank)] == worker.name) {
        SendTo(worker, MakeMeasureLinks(request, rank));
      }
    }
  }
  if (!transition) {
    if (held && IsMember(worker.name) && worker.standing == wire::STANDING_READY &&
        worker.standing_generation == held->number && phase == Phase::kRunning) {
      wire::Go go;
      go.set_generation(held->number);
      SendTo(worker, go);
    }
    return;
  }
  if (transition->awaited.count(worker.name) == 0) {
    return;
  }
  switch (transition->stage) {
    case Transition::Stage::kHalt: {
      wire::Halt halt;
      halt.set_generation(transition->fence);
      halt.set_known_step(known_step);
      SendTo(worker, halt);
      return;
    }
    case Transition::Stage::kPlan:
      return;
    case Transition::Stage::kPrepare:
      return SendTo(worker, MakePrepare());
    case Transition::Stage::kStop: {
      wire::Stop stop;
      stop.set_generation(held->number);
      return SendTo(worker, stop);
    }
    case Transition::Stage::kMove:
      SendTo(worker, MakePrepare());
      return SendTo(worker, MakeStart());
  }
  (void)now;
}

// ---- Profile, heartbeat, leave ----

// Hosts on which something is measured: what is measured beside it would measure that too.
std::set<std::string> Coordinator::State::BusyHosts() const {
  std::set<std::string> busy;
  for (const auto& [name, worker] : workers) {
    if (worker.profiling_until) {
      busy.insert(worker.host);
    }
  }
  for (const auto& [request, measurement] : measuring) {
    for (const std::string& name : measurement.workers) {
      busy.insert(workers.at(name).host);
    }
  }
  return busy;
}

// One worker of a host at a time.
void Coordinator::State::ScheduleProfiles(Time now) {
  std::set<std::string> busy = BusyHosts();
  for (auto& [name, worker] : workers) {
    if (worker.welcomed && worker.seen && worker.profile_json.empty() && !worker.profiling_until &&
        worker.connection != 0 && busy.insert(worker.host).second) {
      worker.profiling_until = now + policy().profile_timeout;
      SendTo(worker, wire::Profile());
    }
  }
}

void Coordinator::State::OnProfiled(Worker& worker, const wire::Profiled& message, Time /*now*/) {
  worker.profiling_until.reset();
  if (worker.profile_json.empty()) {
    worker.profile_json = message.profile_json();
  }
  places_changed = true;
}

void Coordinator::State::OnHeartbeat(Worker& worker, const wire::Heartbeat& message, Time /*now*/) {
  worker.applied_step = message.applied_step();
  worker.standing = message.standing();
  CountWindow(worker, message);
  wire::Alive alive;
  alive.set_known_step(durable_known_step);
  SendTo(worker, alive);
}

void Coordinator::State::OnLeaving(Worker& worker, const wire::Leaving& message, Time now) {
  if (phase == Phase::kDone) {
    return;
  }
  if (message.at_once()) {
    return Lose(worker.name, message.reason(), now);
  }
  worker.draining = true;
  worker.leave_reason = message.reason();
}

void Coordinator::State::On(const DrainRequested& event, Time /*now*/) {
  for (auto& [name, worker] : workers) {
    if (name == event.worker || worker.host == event.worker) {
      worker.draining = true;
      worker.leave_reason = "drained";
    }
  }
}

void Coordinator::State::On(const EmulateRequested& event, Time /*now*/) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr) {
    return;
  }
  if (event.set_speed) {
    worker->emulation.set_speed(event.emulation.speed());
  }
  if (event.set_memory) {
    worker->emulation.set_memory_bytes(event.emulation.memory_bytes());
  }
  if (event.set_link) {
    worker->emulation.set_link_bytes_per_second(event.emulation.link_bytes_per_second());
    places_changed = true;
  }
  job.emulation[event.worker] = worker->emulation;
  SendTo(*worker, worker->emulation);
}

// ---- Losses ----

void Coordinator::State::CheckLeases(Time now) {
  std::vector<std::pair<std::string, std::string>> lost;
  for (const auto& [name, worker] : workers) {
    if (!worker.seen) {
      continue;  // Its time ends with adopt_until.
    }
    if (worker.broken_at && now - *worker.broken_at >= policy().reconnect_grace) {
      lost.emplace_back(name, "its connection broke");
    } else if (now - worker.last_word >= policy().lease) {
      lost.emplace_back(name, fmt::format("no heartbeat for {:.1f} s", Seconds(policy().lease)));
    } else if (worker.profiling_until && now >= *worker.profiling_until) {
      lost.emplace_back(name, "profiling did not end in time");
    }
  }
  for (const auto& [name, reason] : lost) {
    Lose(name, reason, now);
  }
}

// Takes a worker off every list; its process may run on (cut off), but nothing that it says counts.
void Coordinator::State::Dismiss(const std::string& name, const std::string& reason) {
  const auto found = workers.find(name);
  if (found == workers.end()) {
    return;
  }
  Worker& worker = found->second;
  ForgetMeasurementsOf(name);
  if (!reason.empty()) {
    gone[worker.incarnation] = reason;
  }
  if (worker.connection != 0) {
    connections.erase(worker.connection);
    actions.emplace_back(Close{worker.connection});
  }
  if (held) {
    held->members.erase(name);
  }
  finished.erase(name);
  workers.erase(found);
  list_changed = true;
}

// The strings may live in the worker that is forgotten here.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Coordinator::State::Lose(std::string name, std::string reason, Time now) {
  Worker* worker = Find(name);
  if (worker == nullptr || phase == Phase::kDone) {
    return;
  }
  if (worker->welcomed || !worker->seen) {
    Log("worker_lost", {{"worker", name}, {"reason", reason}});
    actions.emplace_back(WorkerGone{name, worker->pid});
  }
  wire::Abandon abandon;
  abandon.set_reason(reason);
  SendTo(*worker, abandon);
  std::vector<std::pair<int64_t, int64_t>> hopeless;
  for (const auto& [key, save] : saves) {
    const bool writes =
        std::find(save.writers.begin(), save.writers.end(), name) != save.writers.end();
    if (writes && !save.committing && save.parts.count(name) == 0) {
      hopeless.push_back(key);
    }
  }
  for (const auto& key : hopeless) {
    AbandonSave(key);
  }
  const bool member = IsMember(name);
  Dismiss(name, reason);
  if (phase == Phase::kAdopting) {
    return;  // FinishAdopting sees who is left.
  }
  if (transition) {
    return LostDuringTransition(name, now);
  }
  if (member && phase == Phase::kRunning) {
    BeginRecovery(now);
  }
}

}  // namespace heddle::elastic
