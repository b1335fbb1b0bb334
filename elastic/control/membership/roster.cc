// Workers join, are heard, and are removed.
#include "elastic/control/membership/roster.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "elastic/protocol/version.h"

namespace heddle::elastic {
namespace {

bool IsEmpty(const wire::Emulation& emulation) {
  return emulation.speed() == 0 && emulation.memory_bytes() == 0 &&
         emulation.link_bytes_per_second() == 0;
}

// The longest name of a host or network; measurements are kept by these names.
constexpr size_t kMaxNameBytes = 255;
// The longest description of what a worker computes on: it is part of lines of text.
constexpr size_t kMaxArithmeticBytes = 4096;

// True if the name can be part of file names, labels and lines of text.
bool IsNameSound(const std::string& name) {
  return name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

// True if what the worker computes on can be compared with others' and be part of lines of text.
bool IsArithmeticSound(const wire::Hello& hello) {
  size_t bytes = 0;
  for (const auto& [part, value] : hello.arithmetic()) {
    const std::string text = part + value;
    bytes += text.size();
    if (part.empty() || !std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; })) {
      return false;
    }
  }
  return bytes > 0 && bytes <= kMaxArithmeticBytes;
}

// Why the Hello cannot be accepted; empty if it can.
std::string Fault(const wire::Hello& hello) {
  if (hello.protocol_version() != kProtocolVersion) {
    return fmt::format("it speaks version {} of the protocol, the coordinator version {}",
                       hello.protocol_version(), kProtocolVersion);
  }
  if (hello.incarnation().size() != 16 || !IsNameSound(hello.name())) {
    return "its name may hold letters, digits, '-', '_' and '.' only";
  }
  if (!IsNameSound(hello.failure_domain())) {
    return "its failure domain may hold letters, digits, '-', '_' and '.' only, at most "
           "64 of them";
  }
  if (hello.host().size() > kMaxNameBytes || hello.network().size() > kMaxNameBytes) {
    return "the name of its host or of its network is too long";
  }
  if (!IsArithmeticSound(hello)) {
    return "it does not say what it computes on, in at most 4096 printable characters";
  }
  return "";
}

// Records that the worker is heard; a gap before does not count against a running profile.
void EndGap(Worker& worker, Time now) {
  if (worker.profiling_until && now - worker.last_heard_at > kGap) {
    *worker.profiling_until += now - worker.last_heard_at;
  }
  worker.last_heard_at = now;
  worker.absent = false;
}

}  // namespace

WorkerIdentity IdentityOf(const wire::Hello& hello) {
  Arithmetic arithmetic;
  for (const auto& [part, value] : hello.arithmetic()) {
    arithmetic[part] = value;
  }
  return {.host = hello.host(),
          .failure_domain = hello.failure_domain(),
          .pid = hello.pid(),
          .data_address = hello.data_address(),
          .metrics_address = hello.metrics_address(),
          .network = hello.network(),
          .probe_address = hello.probe_address(),
          .emulation = hello.emulation(),
          .arithmetic = hello.device_of_job() ? Arithmetic() : arithmetic,
          .on_processor = hello.device_of_job() ? arithmetic : Arithmetic()};
}

const Worker* Roster::Find(const std::string& name) const {
  const auto found = workers_.find(name);
  return found == workers_.end() ? nullptr : &found->second;
}

// ---- Hello ----

Roster::Answer Roster::Judge(const wire::Hello& hello, bool ended, Time now, Duration lease) const {
  using Kind = Answer::Kind;
  if (const std::string fault = Fault(hello); !fault.empty()) {
    return {Kind::kRefuse, fault};
  }
  for (const DurableRelease& kept : releases_) {
    if (kept.incarnation == hello.incarnation()) {
      Answer answer{.kind = Kind::kReleased};
      answer.release.set_reason(kept.reason);
      answer.release.set_requeue(kept.requeue);
      return answer;
    }
  }
  if (ended) {
    return {Kind::kRefuse, "the job has ended"};
  }
  if (const auto given_up = gone_.find(hello.incarnation()); given_up != gone_.end()) {
    return {.kind = Kind::kRefuse,
            .reason = "stale worker: it was given up (" + given_up->second.reason + ")",
            .rejoins = given_up->second.rejoins};
  }
  const Worker* known = hello.name().empty() ? nullptr : Find(hello.name());
  if (known != nullptr && known->incarnation == hello.incarnation()) {
    return {Kind::kReturn};
  }
  if (hello.generation() > 0 || hello.staged_generation() > 0) {
    return {.kind = Kind::kRefuse,
            .reason = fmt::format("stale worker: it belongs to generation {}", hello.generation()),
            .rejoins = true};
  }
  if (!hello.job_id().empty()) {
    // It cannot take part as it is, and whoever asks for its leave in the meantime means the process
    // that comes after it.
    return {.kind = Kind::kRefuse,
            .reason =
                "stale worker: it belongs to this job as it was submitted before, or was given up",
            .rejoins = true};
  }
  if (known == nullptr) {
    return {Kind::kJoin};
  }
  // A process that starts under a known name proves the former one dead, unless that one is still
  // heard.
  if (known->seen && known->connection != 0 && now - known->last_heard_at < lease) {
    return {Kind::kRefuse, "a worker named " + hello.name() + " is connected", false};
  }
  return {Kind::kReplace};
}

std::string Roster::Join(ConnectionId connection, const wire::Hello& hello, Time now) {
  std::string name = hello.name();
  while (name.empty() || Find(name) != nullptr) {
    name = "worker-" + std::to_string(next_number_++);
  }
  Worker& worker = workers_[name];
  worker.name = name;
  worker.incarnation = hello.incarnation();
  static_cast<WorkerIdentity&>(worker) = IdentityOf(hello);
  worker.connection = connection;
  worker.last_heard_at = now;
  connections_[connection] = name;
  list_changed_ = true;
  return name;
}

void Roster::Return(ConnectionId connection, const wire::Hello& hello, Time now, Outbox& out) {
  Worker& worker = workers_.at(hello.name());
  if (worker.connection != 0 && worker.connection != connection) {
    connections_.erase(worker.connection);
    out.Add(Close{worker.connection});
  }
  worker.connection = connection;
  worker.broken_at.reset();
  EndGap(worker, now);
  worker.seen = true;
  static_cast<WorkerIdentity&>(worker) = IdentityOf(hello);
  worker.standing = hello.standing();
  worker.standing_generation = hello.standing_generation();
  worker.applied_step = hello.applied_step();
  connections_[connection] = worker.name;
  list_changed_ = true;
}

void Roster::Welcome(
    const std::string& name, bool again, const Job& job, int64_t known_step, Outbox& out) {
  Worker& worker = workers_.at(name);
  if (IsEmpty(worker.emulation)) {
    if (const auto found = job.emulation.find(name); found != job.emulation.end()) {
      worker.emulation = found->second;
    }
  }
  if (const auto found = job.failure_domains.find(name);
      worker.failure_domain.empty() && found != job.failure_domains.end()) {
    worker.failure_domain = found->second;
  }
  if (worker.arithmetic.empty() && job.OnProcessor(name)) {
    worker.arithmetic = worker.on_processor;
  }
  wire::Welcome welcome;
  welcome.set_name(name);
  welcome.set_job_id(job.id);
  welcome.set_job_yaml(job.yaml);
  welcome.set_secret(job.secret);
  welcome.set_output_folder(job.output_folder);
  *welcome.mutable_emulation() = worker.emulation;
  welcome.set_known_step(known_step);
  welcome.set_again(again);
  welcome.set_heartbeat_seconds(Seconds(job.policy.heartbeat));
  welcome.set_coordinator_wait_seconds(Seconds(job.policy.coordinator_wait));
  welcome.set_notice_seconds(Seconds(job.policy.notice));
  out.Tell(worker.connection, welcome);
  if (!again) {
    out.Log("worker_joined", {{"worker", name}, {"host", worker.host}, {"pid", worker.pid}});
  }
  worker.welcomed = true;
  list_changed_ = true;
}

// ---- Streams ----

bool Roster::Speaks(ConnectionId connection) const {
  const auto stream = connections_.find(connection);
  const Worker* worker = stream == connections_.end() ? nullptr : Find(stream->second);
  return worker != nullptr && worker->connection == connection;
}

const Worker* Roster::NoteHeard(ConnectionId connection, Time now) {
  const auto stream = connections_.find(connection);
  const auto found = stream == connections_.end() ? workers_.end() : workers_.find(stream->second);
  if (found == workers_.end() || found->second.connection != connection) {
    return nullptr;
  }
  EndGap(found->second, now);
  return &found->second;
}

std::string Roster::Disconnect(ConnectionId connection, Time now) {
  const auto stream = connections_.find(connection);
  if (stream == connections_.end()) {
    return "";
  }
  const auto found = workers_.find(stream->second);
  connections_.erase(stream);
  if (found == workers_.end() || found->second.connection != connection) {
    return "";
  }
  found->second.connection = 0;
  found->second.broken_at = now;
  return found->first;
}

// ---- Profile, heartbeat, leave ----

void Roster::ScheduleProfiles(std::set<std::string> busy_hosts,
                              Duration timeout,
                              Time now,
                              Outbox& out) {
  busy_hosts.merge(ProfilingHosts(*this));
  for (auto& [name, worker] : workers_) {
    if (worker.welcomed && worker.seen && !worker.absent && worker.profile_json.empty() &&
        !worker.profiling_until && worker.connection != 0 &&
        busy_hosts.insert(worker.host).second) {
      worker.profiling_until = now + timeout;
      out.Tell(worker.connection, wire::Profile());
    }
  }
}

void Roster::TakeProfile(const std::string& name, const std::string& profile_json) {
  Worker& worker = workers_.at(name);
  worker.profiling_until.reset();
  if (worker.profile_json.empty()) {
    worker.profile_json = profile_json;
  }
}

void Roster::SetStanding(const std::string& name, wire::Standing standing) {
  workers_.at(name).standing = standing;
}

void Roster::BeginGeneration(int64_t number, const std::map<std::string, std::string>& members) {
  for (auto& [name, worker] : workers_) {
    worker.standing = members.count(name) > 0 ? wire::STANDING_TRAINING : wire::STANDING_IDLE;
    worker.standing_generation = number;
  }
}

std::optional<wire::Emulation> Roster::Emulate(const std::string& name,
                                               const wire::Emulation& limits,
                                               bool speed,
                                               bool memory,
                                               bool link,
                                               Outbox& out) {
  const auto found = workers_.find(name);
  if (found == workers_.end()) {
    return std::nullopt;
  }
  wire::Emulation& emulation = found->second.emulation;
  if (speed) {
    emulation.set_speed(limits.speed());
  }
  if (memory) {
    emulation.set_memory_bytes(limits.memory_bytes());
  }
  if (link) {
    emulation.set_link_bytes_per_second(limits.link_bytes_per_second());
  }
  out.Tell(found->second.connection, emulation);
  return emulation;
}

// ---- Losses ----

void Roster::SetAbsent(const std::set<std::string>& names) {
  for (auto& [name, worker] : workers_) {
    worker.absent = names.count(name) > 0;
    if (worker.absent) {  // Others of its host need not wait; it is asked again once it is heard.
      worker.profiling_until.reset();
    }
  }
}

void Roster::Dismiss(const std::string& name,
                     const std::string& reason,
                     bool rejoins,
                     Outbox& out) {
  const Worker& worker = workers_.at(name);
  if (!reason.empty()) {
    gone_[worker.incarnation] = {reason, rejoins};
  }
  if (worker.connection != 0) {
    connections_.erase(worker.connection);
    out.Add(Close{worker.connection});
  }
  workers_.erase(name);
  list_changed_ = true;
}

// ---- What is kept and shown ----

std::optional<ListWorkers> Roster::TakeList(bool idle) {
  if (!std::exchange(list_changed_, false)) {
    return std::nullopt;
  }
  ListWorkers list;
  for (const auto& [name, worker] : workers_) {
    if (worker.welcomed || idle) {
      list.workers.push_back({name, worker.pid, worker.metrics_address, worker.host});
    }
  }
  return list;
}

void Roster::Restore(const DurableState& durable, Time now) {
  next_number_ = durable.next_worker_number;
  releases_ = durable.releases;
  for (const auto& [name, stored] : durable.workers) {
    Worker& worker = workers_[name];
    worker.name = name;
    worker.incarnation = stored.incarnation;
    worker.host = stored.host;
    worker.failure_domain = stored.failure_domain;
    worker.arithmetic = stored.arithmetic;
    worker.profile_json = stored.profile_json;
    worker.draining = !stored.leaves.empty();
    worker.notices = {stored.noticed, stored.notice, stored.withdrawn};
    worker.leave_reason = stored.leaves;
    worker.seen = false;
    worker.last_heard_at = now;
  }
}

void Roster::Store(DurableState& durable) const {
  for (const auto& [name, worker] : workers_) {
    durable.workers[name] = {.incarnation = worker.incarnation,
                             .host = worker.host,
                             .profile_json = worker.profile_json,
                             .failure_domain = worker.failure_domain,
                             .leaves = worker.draining ? worker.leave_reason : "",
                             .noticed = worker.notices.count,
                             .notice = worker.notices.newest,
                             .withdrawn = worker.notices.withdrawn,
                             .arithmetic = worker.arithmetic};
  }
  durable.releases = releases_;
  durable.next_worker_number = next_number_;
}

Status Roster::Check() const {
  for (const auto& [connection, name] : connections_) {
    const Worker* worker = Find(name);
    if (worker == nullptr || worker->connection != connection) {
      return InternalError("connection {} belongs to nobody ({})", connection, name);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
