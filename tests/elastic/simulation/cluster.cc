#include "tests/elastic/simulation/cluster.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "base/hash.h"

namespace heddle::elastic {
namespace {

constexpr double kLivenessSeconds = 400;
constexpr int64_t kMostEvents = 300000;
constexpr size_t kCheckpointsKept = 3;

Duration Milliseconds(double value) {
  return FromSeconds(value / 1000);
}

// All that an action says, as text.
struct ActionText {
  std::string operator()(const Persist& action) const {
    const DurableState& state = action.state;
    std::string text =
        fmt::format("persist {} {} {} {} {} {}", state.generation_counter, state.known_step,
                    state.life, state.next_worker_number, state.finished, state.failed);
    if (state.held) {
      text += fmt::format(" held {} {}", state.held->number, state.held->plan.plan_json);
      for (const auto& [name, incarnation] : state.held->members) {
        text += " " + name + incarnation;
      }
    }
    for (const auto& [generation, source] : state.snapshots) {
      text += fmt::format(" {}:{}", generation, source.last_step);
    }
    for (const auto& [name, worker] : state.workers) {
      text += " " + name + worker.incarnation + worker.profile_json;
    }
    for (const int64_t step : state.checkpoints) {
      text += fmt::format(" {}", step);
    }
    return text;
  }
  std::string operator()(const Send& action) const {
    return fmt::format("send {} ", action.connection) + action.message.SerializeAsString();
  }
  std::string operator()(const Close& action) const {
    return fmt::format("close {}", action.connection);
  }
  std::string operator()(const FindPlan& action) const {
    const PlanRequest& request = action.request;
    std::string text = fmt::format("find {} {} {} {} ", request.id, request.generation,
                                   request.current_runs, request.current_plan_json) +
                       request.links.SerializeAsString();
    for (const Candidate& candidate : request.candidates) {
      text += fmt::format(" {} {} {}", candidate.name, candidate.slowdown, candidate.holds_state);
    }
    return text;
  }
  std::string operator()(const CommitCheckpoint& action) const {
    return fmt::format("commit {} {} {} {} {}", action.step, action.generation,
                       fmt::join(action.parts, "|"), action.plan_json,
                       action.validation_loss.value_or(-1));
  }
  std::string operator()(const NoteValidation& action) const {
    return fmt::format("validation {} {}", action.step, action.loss);
  }
  std::string operator()(const AbandonCheckpoint& action) const {
    return fmt::format("abandon {} {}", action.step, action.generation);
  }
  std::string operator()(const WriteLog& action) const { return FormatLogEvent(action.event, 0); }
  std::string operator()(const ListWorkers& action) const {
    std::string text = "list";
    for (const ListWorkers::Entry& entry : action.workers) {
      text += fmt::format(" {} {} {}", entry.name, entry.pid, entry.host);
    }
    return text;
  }
  std::string operator()(const WorkerGone& action) const {
    return fmt::format("gone {} {}", action.worker, action.pid);
  }
  std::string operator()(const EndJob& action) const {
    return fmt::format("end {} {} {}", action.ok, action.bad_input, action.reason);
  }
};

}  // namespace

// ---- The undisturbed run ----

bool SimRefused(int64_t step, int64_t refused_every) {
  return refused_every > 0 && step % refused_every == 0;
}
double SimNorm(int64_t step, int64_t refused_every) {
  if (SimRefused(step, refused_every) && step / refused_every % 2 == 1) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return 1.0 + 0.001 * static_cast<double>(Hash64(std::to_string(step)) % 1000);
}
double SimLoss(int64_t step, int64_t refused_every) {
  return SimRefused(step, refused_every) ? std::numeric_limits<double>::quiet_NaN()
                                         : 5.0 / (1.0 + 0.1 * static_cast<double>(step));
}
double SimValidation(int64_t step, int64_t generation) {
  return static_cast<double>(step) + static_cast<double>(generation) / 1024;
}
uint64_t SimChain(int64_t step, int64_t refused_every) {
  uint64_t chain = 7;
  for (int64_t k = 1; k <= step; ++k) {
    if (!SimRefused(k, refused_every)) {
      chain = Hash64(fmt::format("{} {}", k, SimNorm(k, refused_every)), chain);
    }
  }
  return chain;
}

std::string EncodeSimPlan(int64_t generation, const SimPlan& plan) {
  std::string text = std::to_string(generation);
  for (const auto& [name, parameters] : plan) {
    text += " " + name + ":";
    for (const int32_t parameter : parameters) {
      text += std::to_string(parameter) + ",";
    }
  }
  return text;
}

SimPlan DecodeSimPlan(const std::string& text) {
  SimPlan plan;
  std::istringstream words(text);
  std::string word;
  words >> word;
  while (words >> word) {
    const size_t colon = word.find(':');
    std::vector<int32_t> parameters;
    for (size_t at = colon + 1; at < word.size(); at += 2) {
      parameters.push_back(word[at] - '0');
    }
    plan.emplace_back(word.substr(0, colon), parameters);
  }
  return plan;
}

// ---- Time ----

Cluster::Cluster(const SimOptions& options) : options_(options), random_(options.seed) {
  now_ = Time(std::chrono::seconds(1000));
  job_.id = "job";
  job_.policy.total_steps = options.steps;
  job_.policy.initial_workers = options.workers;
  job_.policy.min_workers = 1;
  job_.policy.checkpoint_every = options.checkpoint_every;
  job_.policy.validate_every = 6;
  job_.policy.stop_on_non_finite = options.stop_on_refused;
  job_.policy.formation_timeout = std::chrono::seconds(5);
  job_.policy.reply_timeout = std::chrono::seconds(10);
  job_.policy.move_timeout = std::chrono::seconds(15);
  job_.policy.stop_timeout = std::chrono::seconds(20);
  job_.policy.profile_timeout = std::chrono::seconds(10);
  job_.policy.coordinator_wait = std::chrono::minutes(10);
  job_.policy.drift.cooldown = std::chrono::seconds(1);
  job_.policy.links.transports = {"shm", "tcp"};
  job_.policy.links.timeout = std::chrono::seconds(2);
  job_.policy.links.wait = std::chrono::seconds(10);
  job_.policy.replicate_every = options.replicate_every;
  job_.policy.replica_copies = options.replica_copies;
}

void Cluster::At(Time when, std::function<void()> call) {
  queue_.push({std::max(when, now_), order_++, std::move(call)});
}

void Cluster::After(double low_ms, double high_ms, std::function<void()> call) {
  At(now_ + Milliseconds(low_ms + (high_ms - low_ms) * random_.Uniform()), std::move(call));
}

void Cluster::OnWorker(const std::string& key, Time when, std::function<void(SimWorker&)> call) {
  At(when, [this, key, call = std::move(call)] {
    SimWorker* worker = Worker(key);
    if (worker == nullptr || !worker->alive || worker->exited) {
      return;
    }
    if (worker->stopped_until) {
      worker->deferred.push_back([this, key, call] { OnWorker(key, now_, call); });
      return;
    }
    call(*worker);
  });
}

void Cluster::OnWorkerAfter(const std::string& key,
                            double low_ms,
                            double high_ms,
                            std::function<void(SimWorker&)> call) {
  OnWorker(key, now_ + Milliseconds(low_ms + (high_ms - low_ms) * random_.Uniform()),
           std::move(call));
}

void Cluster::Fail(const std::string& what) {
  if (result_.error.empty()) {
    result_.error = fmt::format("seed {}: at {:.3f} s: {} (faults: {})", options_.seed,
                                Seconds(now_.time_since_epoch()) - 1000, what, result_.faults);
    Trace("FAIL " + what);
  }
}

void Cluster::Trace(const std::string& line) {
  if (options_.trace) {
    std::printf("%9.4f %s\n", Seconds(now_.time_since_epoch()) - 1000, line.c_str());
  }
}

SimWorker* Cluster::Worker(const std::string& key) {
  const auto found = workers_.find(key);
  return found == workers_.end() ? nullptr : found->second.get();
}

SimWorker* Cluster::Named(const std::string& name) {
  for (auto& [key, worker] : workers_) {
    if (worker->alive && !worker->exited && worker->member->name() == name) {
      return worker.get();
    }
  }
  return nullptr;
}

bool Cluster::Unreachable(const SimWorker& worker) const {
  return worker.cut_until.has_value() && now_ < *worker.cut_until;
}

// ---- Workers and their streams ----

std::string Cluster::Spawn(const std::string& name) {
  const std::string key = fmt::format("p{:02}", next_key_++);
  auto worker = std::make_unique<SimWorker>();
  worker->key = key;
  worker->incarnation = fmt::format("{:0>16}", key);
  MemberIdentity identity;
  identity.name = name;
  identity.incarnation = worker->incarnation;
  identity.host = fmt::format("host-{}", next_key_ % options_.hosts);
  if (options_.domains > 1) {
    identity.failure_domain = fmt::format("rack-{}", next_key_ % options_.hosts % options_.domains);
  }
  identity.pid = 100 + next_key_;
  identity.data_address = key;
  identity.network = identity.host;
  identity.probe_address = key;
  worker->host = identity.host;
  MemberOptions options;
  options.window_steps = 3;
  options.window_time = std::chrono::milliseconds(100);
  worker->member = std::make_unique<Member>(identity, options, now_);
  workers_[key] = std::move(worker);
  OnWorkerAfter(key, 0, 200, [this](SimWorker& w) { Connect(w.key); });
  return key;
}

void Cluster::Connect(const std::string& key) {
  SimWorker& worker = *Worker(key);
  worker.reconnecting = false;
  if (worker.connection != 0) {
    return;
  }
  if (!coordinator_ || Unreachable(worker) || now_ < worker.control_cut_until) {
    worker.reconnecting = true;
    OnWorkerAfter(key, 50, 500, [this](SimWorker& w) { Connect(w.key); });
    return;
  }
  worker.connection = next_connection_++;
  streams_[worker.connection] = key;
  worker.to_coordinator = worker.from_coordinator = now_;
  TellMember(worker, StreamUp());
}

// The stream ends: the worker notices at once, the coordinator too or only by its silence.
void Cluster::BreakStream(const std::string& key, bool seen_by_coordinator) {
  SimWorker& worker = *Worker(key);
  const ConnectionId connection = std::exchange(worker.connection, 0);
  if (connection == 0) {
    return;
  }
  if (seen_by_coordinator && streams_.count(connection) > 0) {
    const int64_t life = coordinator_life_;
    After(0, 5, [this, connection, life] {
      if (streams_.erase(connection) > 0 && coordinator_ && life == coordinator_life_) {
        Tell(Disconnected{connection});
      }
    });
  }
  if (!worker.alive || worker.exited) {
    return;
  }
  OnWorkerAfter(key, 0, 5, [this](SimWorker& w) {
    TellMember(w, StreamDown{"broken"});
    if (!w.reconnecting && !w.exited) {
      w.reconnecting = true;
      OnWorkerAfter(w.key, 25, 50, [this](SimWorker& again) { Connect(again.key); });
    }
  });
}

void Cluster::TellMember(SimWorker& worker, const MemberEvent& event) {
  for (const MemberAction& action : worker.member->Handle(event, now_)) {
    Perform(worker, action);
    if (worker.exited || !worker.alive) {
      return;
    }
  }
  ScheduleMemberTick(worker);
}

void Cluster::ScheduleMemberTick(SimWorker& worker) {
  const std::optional<Time> next = worker.member->NextDeadline();
  if (!next) {
    return;
  }
  // Ticks that come too early change nothing; one outstanding tick a deadline is enough.
  OnWorker(worker.key, *next, [this, at = *next](SimWorker& w) {
    const std::optional<Time> due = w.member->NextDeadline();
    if (due && *due == at) {
      TellMember(w, MemberTicked{.progress = w.progress, .waits = w.waits});
    }
  });
}

// ---- The coordinator ----

void Cluster::StartCoordinator() {
  if (coordinator_) {
    return;
  }
  ++coordinator_life_;
  if (stored_any_) {
    DurableState restored = stored_;
    if (options_.planted == Planted::kForgetGeneration && !older_.empty()) {
      restored = older_[older_.size() / 2];
    }
    Job job = job_;
    job.checkpoints = FindCheckpoints();
    coordinator_.emplace(restored, job, now_);
    ++result_.probes["coordinator restarted"];
  } else {
    coordinator_.emplace();
    Tell(Submitted{job_});
  }
  tick_at_.reset();
  ScheduleTick();
}

void Cluster::StopCoordinator(bool power) {
  coordinator_.reset();
  asked_.reset();
  planning_ = false;
  for (const auto& [number, commit] : committing_) {
    if (random_.Below(2) == 0) {  // The rename was done, and nobody heard of it.
      Store(commit);
    }
  }
  committing_.clear();
  if (power) {
    final_steps_ = durable_steps_;
    ++result_.probes["power cut"];
  }
  ++coordinator_life_;
  streams_.clear();
  for (auto& [key, worker] : workers_) {
    if (worker->alive && !worker->exited) {
      BreakStream(key, false);
    }
  }
}

void Cluster::ScheduleTick() {
  const std::optional<Time> next = coordinator_->NextDeadline();
  if (!next || (tick_at_ && *tick_at_ <= *next && *tick_at_ > now_)) {
    return;
  }
  tick_at_ = std::max(*next, now_ + std::chrono::microseconds(1));
  At(*tick_at_, [this, life = coordinator_life_, at = *tick_at_] {
    if (coordinator_ && life == coordinator_life_ && tick_at_ == at) {
      tick_at_.reset();
      Tell(Ticked());
    }
  });
}

void Cluster::Tell(const CoordinatorEvent& event) {
  const int64_t life = coordinator_life_;
  for (const CoordinatorAction& action : coordinator_->Handle(event, now_)) {
    result_.digest = Hash64(std::visit(ActionText(), action), result_.digest);
    Perform(action);
    if (!coordinator_ || life != coordinator_life_) {
      return;
    }
  }
  if (check_checkpoints_ || std::holds_alternative<CheckpointCommitted>(event)) {
    check_checkpoints_ = false;
    CheckCheckpoints();
  }
  if (const Status status = coordinator_->CheckInvariants(); !status.ok()) {
    Fail("coordinator: " + status.ToString());
  }
  ScheduleTick();
}

// What the coordinator would go on from is there, and of the history that counts.
void Cluster::CheckCheckpoints() {
  const wire::JobStatus status = coordinator_->StatusAt(now_);
  for (const int64_t step : status.checkpoint_steps()) {
    const auto stored = committed_.find(step);
    if (stored == committed_.end()) {
      Fail(fmt::format("checkpoint {} is listed and was pruned", step));
    } else if (!Counts(stored->second, step)) {
      Fail(fmt::format("checkpoint {} is listed and of generation {}, which was given up there",
                       step, stored->second));
    }
  }
  if (!committed_.empty() && (status.checkpoint_steps().empty() ||
                              committed_.rbegin()->first > *status.checkpoint_steps().rbegin())) {
    ++result_.probes["checkpoint given up"];
  }
}

void Cluster::CheckSent(const wire::ToWorker& message) {
  if (message.has_measure_links()) {
    const wire::MeasureLinks& request = message.measure_links();
    const std::string pair = request.members(0).name() + " " + request.members(1).name();
    const auto [found, is_new] = pair_of_request_.emplace(request.request(), pair);
    if (found->second != pair) {
      Fail(fmt::format("request {} measures {} and {}", request.request(), found->second, pair));
    }
    if (is_new && std::next(found) != pair_of_request_.end()) {
      Fail(fmt::format("request {} after {}", request.request(), pair_of_request_.rbegin()->first));
    }
  }
  int64_t generation = 0;
  if (message.has_halt()) {
    generation = message.halt().generation();
  } else if (message.has_prepare()) {
    generation = message.prepare().generation();
    const auto [found, is_new] =
        plan_of_generation_.emplace(generation, message.prepare().plan_json());
    if (!is_new && found->second != message.prepare().plan_json()) {
      Fail(fmt::format("generation {} has two plans", generation));
    }
    const std::string links = message.prepare().links().ShortDebugString();
    if (links_of_generation_.emplace(generation, links).first->second != links) {
      Fail(fmt::format("generation {} has two tables of links", generation));
    }
    if (message.prepare().links().places_size() < message.prepare().members_size()) {
      Fail(fmt::format("generation {} tells the links of some of its members", generation));
    }
    CheckHolders(message.prepare());
  } else if (message.has_start()) {
    CheckSource(message.start());
  } else if (message.has_go()) {
    generation = message.go().generation();
    if (generation < newest_go_) {
      Fail(fmt::format("Go for generation {} after {}", generation, newest_go_));
    }
    for (auto& [older, last_step] : last_snapshot_) {
      const auto start = start_sent_.find(generation);
      last_step = older < generation ? std::min(last_step, start->second) : last_step;
    }
    last_snapshot_.emplace(generation, INT64_MAX);
    begun_.emplace(generation, start_sent_.at(generation));
    check_checkpoints_ = true;
    newest_go_ = generation;
    if (!stored_.held || stored_.held->number != generation) {
      Fail("Go before its generation was durable");
    }
  }
  if (generation > stored_.generation_counter) {
    Fail(fmt::format("generation {} was sent and only {} is durable", generation,
                     stored_.generation_counter));
  }
  highest_sent_generation_ = std::max(highest_sent_generation_, generation);
}

// A save ends once: committed or given up.
void Cluster::CheckSaveEnds(int64_t step, int64_t generation, const char* how) {
  ++result_.probes[std::string("save ") + how];
  const auto [found, is_new] =
      save_ends_.emplace(std::tuple(coordinator_life_, step, generation), how);
  if (!is_new) {
    Fail(fmt::format("the save of step {}, generation {}, is {} after it was {}", step, generation,
                     how, found->second));
  }
}

void Cluster::Keep(const DurableState& state) {
  if (state.known_step > stored_.known_step && options_.planted != Planted::kForgetLog) {
    durable_steps_ = final_steps_;
  }
  stored_ = state;
  stored_any_ = true;
}

bool Cluster::Counts(int64_t generation, int64_t step) const {
  const auto began = begun_.find(generation);
  return began != begun_.end() && std::all_of(began, begun_.end(), [&](const auto& other) {
           return other.first == generation ? step >= other.second : step <= other.second;
         });
}

void Cluster::Perform(const CoordinatorAction& action) {
  if (const auto* persist = std::get_if<Persist>(&action)) {
    if (stored_any_ && persist->state.generation_counter < stored_.generation_counter) {
      Fail("the generation counter went backwards");
    }
    if (options_.planted == Planted::kForgetGeneration) {
      older_.push_back(persist->state);
    }
    Keep(persist->state);
  } else if (const auto* send = std::get_if<Send>(&action)) {
    CheckSent(send->message);
    if (!send->message.has_alive()) {
      Trace(fmt::format(
          "to {}: {}",
          streams_.count(send->connection) > 0 ? streams_.at(send->connection) : "nobody",
          send->message.ShortDebugString()));
    }
    const auto stream = streams_.find(send->connection);
    if (stream == streams_.end()) {
      return;
    }
    SimWorker& worker = *Worker(stream->second);
    if (Unreachable(worker) || now_ < worker.control_cut_until) {
      return;
    }
    const int copies = random_.Below(50) == 0 ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      worker.from_coordinator = std::max({worker.from_coordinator, worker.control_frozen_until,
                                          now_ + Milliseconds(0.1 + 3 * random_.Uniform())}) +
                                Duration(1);
      OnWorker(worker.key, worker.from_coordinator,
               [this, connection = send->connection, message = send->message](SimWorker& w) {
                 if (w.connection == connection && !Unreachable(w)) {
                   TellMember(w, FromCoordinator{message});
                 }
               });
    }
  } else if (const auto* close = std::get_if<Close>(&action)) {
    const auto stream = streams_.find(close->connection);
    if (stream != streams_.end()) {
      const std::string key = stream->second;
      streams_.erase(stream);
      // After what was sent before.
      SimWorker& worker = *Worker(key);
      OnWorker(key, worker.from_coordinator + Duration(1),
               [this, connection = close->connection](SimWorker& w) {
                 if (w.connection == connection && !Unreachable(w)) {
                   BreakStream(w.key, false);
                 }
               });
    }
  } else if (const auto* find = std::get_if<FindPlan>(&action)) {
    FindPlanFor(find->request);
  } else if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
    CheckSaveEnds(commit->step, commit->generation, "committed");
    Commit(*commit);
  } else if (const auto* abandon = std::get_if<AbandonCheckpoint>(&action)) {
    CheckSaveEnds(abandon->step, abandon->generation, "given up");
  } else if (const auto* log = std::get_if<WriteLog>(&action)) {
    TakeLog(log->event);
  } else if (const auto* end = std::get_if<EndJob>(&action)) {
    TakeEnd(*end);
  }
}

void Cluster::TakeEnd(const EndJob& end) {
  Trace("end: " + end.reason);
  ended_ = true;
  const bool refused = options_.stop_on_refused && options_.refused_every > 0;
  if (!refused) {
    return end.ok ? void() : Fail("the job failed: " + end.reason);
  }
  const int64_t first = options_.refused_every;
  if (end.ok || end.reason.find(fmt::format("step {} is not finite", first)) == std::string::npos) {
    Fail(fmt::format("step {} is not finite, and the job ended: {}", first, end.reason));
  }
  if (final_steps_.count(first) == 0 || final_steps_.rbegin()->first > first) {
    Fail(fmt::format("the job failed at step {}, and the last one logged is another", first));
  }
  ++result_.probes["stopped by a step"];
}

void Cluster::TakeLog(const LogEvent& event) {
  Trace("log " + FormatLogEvent(event, 0));
  ++result_.probes[event.kind];
  if (event.kind == "step") {
    const int64_t step = std::get<int64_t>(*event.Find("step"));
    const double loss = std::get<double>(*event.Find("loss"));
    if ((Refused(step) ? !std::isnan(loss) : loss != SimLoss(step, 0)) ||
        std::get<int64_t>(*event.Find("first_sample")) != (step - 1) * 8) {
      Fail(fmt::format("step {} was logged with another loss or samples", step));
    }
    const int64_t generation = std::get<int64_t>(*event.Find("generation"));
    if (!Counts(generation, step)) {
      Fail(fmt::format("step {} was logged as generation {} ran it, which does not count", step,
                       generation));
    }
    final_steps_[step] = event;
  } else if (event.kind == "validation") {
    const int64_t step = std::get<int64_t>(*event.Find("step"));
    const double loss = std::get<double>(*event.Find("loss"));
    const auto generation = std::lround((loss - static_cast<double>(step)) * 1024);
    if (!Counts(generation, step)) {
      Fail(fmt::format("step {} was logged as generation {} validated it, which does not count",
                       step, generation));
    }
  } else if (event.kind == "links_measured") {
    ++result_.probes["links " + std::get<std::string>(*event.Find("result"))];
  } else if (event.kind == "resumed" && std::get<int64_t>(*event.Find("steps_repeated")) > 0) {
    ++result_.probes["steps repeated"];
  } else if (event.kind == "worker_lost") {
    // Nobody is late that does something, or waits for others that do.
    const std::string reason = std::get<std::string>(*event.Find("reason"));
    const SimWorker* lost = Named(std::get<std::string>(*event.Find("worker")));
    if (reason.find("in time") != std::string::npos) {
      ++result_.probes["stood still"];
      if (lost != nullptr && !lost->stuck && !lost->stopped_until && !Unreachable(*lost) &&
          now_ >= std::max(lost->control_cut_until, lost->control_frozen_until)) {
        Fail(fmt::format("{} is given up although it is not stuck: {}", lost->key, reason));
      }
    }
  } else if (event.kind == "recovery_source") {
    ++result_.probes["from " + std::get<std::string>(*event.Find("chosen"))];
  } else if (event.kind == "replica_refused") {
    last_snapshot_.at(std::get<int64_t>(*event.Find("generation"))) =
        std::get<int64_t>(*event.Find("step")) - 1;
  } else if (event.kind == "job_finished") {
    for (int64_t step = 1; step <= options_.steps; ++step) {
      if (final_steps_.count(step) == 0) {
        Fail(fmt::format("step {} was never logged", step));
      } else if (!Counts(std::get<int64_t>(*final_steps_.at(step).Find("generation")), step)) {
        Fail(fmt::format("step {} was never logged as it was run again", step));
      }
    }
    if (committed_.count(options_.steps) == 0) {
      Fail("finished without the last checkpoint");
    }
  }
}

// One thread plans; of what is asked meanwhile only the newest counts.
void Cluster::FindPlanFor(const PlanRequest& request) {
  asked_ = request;
  if (!planning_) {
    BeginPlan();
  }
}

void Cluster::BeginPlan() {
  if (!asked_) {
    return;
  }
  const PlanOutcome outcome = PlanFor(*std::exchange(asked_, std::nullopt));
  double most = random_.Below(5) == 0 ? std::max(600.0, options_.planner_ms) : options_.planner_ms;
  if (!planned_for_long_ && random_.Below(150) == 0) {
    planned_for_long_ = true;
    most = 200'000;
    ++result_.probes["planned for long"];
  }
  planning_ = true;
  After(most > 600 ? most / 2 : most / 80, most, [this, outcome, life = coordinator_life_] {
    if (coordinator_ && life == coordinator_life_) {
      planning_ = false;
      Tell(Planned{outcome});
      if (coordinator_ && life == coordinator_life_ && !planning_) {
        BeginPlan();
      }
    }
  });
}

// Some partition of the candidates into pipelines, each of which holds all parameters.
PlanOutcome Cluster::PlanFor(const PlanRequest& request) {
  PlanOutcome outcome;
  outcome.request_id = request.id;
  for (const Candidate& candidate : request.candidates) {
    if (candidate.profile_json == kAbsurdProfile) {
      ++result_.probes["no plan for an absurd profile"];
      outcome.status = InvalidArgumentError("worker {}: a rate is no number", candidate.name);
      return outcome;
    }
  }
  if (random_.Below(40) == 0) {
    ++result_.probes["plan refused"];
    outcome.status = ResourceExhaustedError("no memory to plan with");
    return outcome;
  }
  if (static_cast<size_t>(request.links.places_size()) != request.candidates.size()) {
    Fail("a plan is looked for without a place for each candidate");
  }
  result_.probes["links known to a plan"] += request.links.pairs_size();
  std::vector<std::string> names;
  for (const Candidate& candidate : request.candidates) {
    names.push_back(candidate.name);
  }
  for (size_t i = names.size(); i > 1; --i) {
    std::swap(names[i - 1], names[random_.Below(i)]);
  }
  // Members that are all silent beside a worker that stands by have nobody to speak for them.
  if (names.size() > 1 && !options_.control_faults_only && random_.Below(8) == 0) {
    names.pop_back();  // It would slow the job.
  }
  SimPlan plan;
  size_t at = 0;
  while (at < names.size()) {
    const size_t stages = std::min(names.size() - at, 1 + random_.Below(3));
    for (size_t stage = 0; stage < stages; ++stage) {
      std::vector<int32_t> parameters;
      for (int32_t p = 0; p < kSimParameters; ++p) {
        if (static_cast<size_t>(p) * stages / kSimParameters == stage) {
          parameters.push_back(p);
        }
      }
      plan.emplace_back(names[at + stage], parameters);
    }
    at += stages;
  }
  outcome.plan_json = EncodeSimPlan(request.generation, plan);
  outcome.parameter_count = kSimParameters;
  for (const auto& [name, parameters] : plan) {
    outcome.members.push_back(name);
    outcome.program_hashes.push_back(Hash64(outcome.plan_json + name));
    outcome.parameters.push_back(parameters);
  }
  outcome.predicted_step_seconds = 0.03 / static_cast<double>(plan.size());
  outcome.current_step_seconds = request.current_runs ? 0.05 : 0;
  return outcome;
}

void Cluster::Commit(const CommitCheckpoint& commit) {
  std::set<int32_t> covered;
  for (const std::string& part : commit.parts) {
    std::istringstream words(part);
    int32_t parameter = 0;
    SimParameter value;
    while (words >> parameter >> value.step >> value.chain) {
      if (value.step != commit.step || value.chain != Chain(commit.step)) {
        Fail(fmt::format("checkpoint {} holds another state", commit.step));
      }
      covered.insert(parameter);
    }
  }
  if (covered.size() != kSimParameters) {
    Fail(fmt::format("checkpoint {} is not complete", commit.step));
  }
  const int64_t number = next_number_++;
  committing_[number] = commit;
  After(1, 60, [this, commit, number, life = coordinator_life_] {
    if (!coordinator_ || life != coordinator_life_) {
      return;  // It died before or after the rename.
    }
    committing_.erase(number);
    CheckpointCommitted done;
    done.step = commit.step;
    done.generation = commit.generation;
    done.raw_bytes = options_.tells_moves ? 8 * kSimParameters : 0;
    Store(commit);
    done.pruned = Prune(commit.step);
    Tell(done);
  });
}

void Cluster::Store(const CommitCheckpoint& commit) {
  committed_[commit.step] = commit.generation;
  damaged_.erase(commit.step);
}

// The newest few stay, whatever history they are of, and the one that was just committed.
std::vector<int64_t> Cluster::Prune(int64_t sound) {
  std::vector<int64_t> pruned;
  for (auto it = committed_.begin();
       committed_.size() > kCheckpointsKept && it != committed_.end();) {
    if (it->first != sound) {
      pruned.push_back(it->first);
      damaged_.erase(it->first);
      it = committed_.erase(it);
    } else {
      ++it;
    }
  }
  return pruned;
}

// Only the newest sound one is read in full.
std::vector<int64_t> Cluster::FindCheckpoints() const {
  std::vector<int64_t> steps;
  for (const auto& [step, generation] : committed_) {
    steps.push_back(step);
  }
  while (!steps.empty() && damaged_.count(steps.back()) > 0) {
    steps.pop_back();
  }
  return steps;
}

// ---- The run ----

SimResult Cluster::Run() {
  StartCoordinator();
  for (int i = 0; i < options_.workers; ++i) {
    Spawn(i % 2 == 0 ? fmt::format("node-{}", i) : "");
  }
  ScheduleFaults();
  const Time limit = now_ + FromSeconds(options_.fault_window_seconds + kLivenessSeconds);
  for (int64_t events = 0; !queue_.empty() && !ended_ && result_.error.empty(); ++events) {
    if (events > kMostEvents) {
      Fail("somebody is busy doing nothing");
    }
    const Entry entry = queue_.top();
    queue_.pop();
    now_ = entry.at;
    if (now_ > limit) {
      std::string standing;
      for (const auto& [key, worker] : workers_) {
        if (worker->alive && !worker->exited) {
          standing += fmt::format(" {}({})={}/{}", key, worker->member->name(),
                                  wire::Standing_Name(worker->member->standing()),
                                  worker->member->applied_step());
        }
      }
      Fail("the job did not finish; coordinator " +
           (coordinator_ ? coordinator_->StatusAt(now_).ShortDebugString() : "down") + standing);
      break;
    }
    entry.call();
  }
  if (!ended_ && result_.error.empty()) {
    Fail("nothing is left to happen and the job is not done");
  }
  result_.seconds = Seconds(now_.time_since_epoch()) - 1000;
  return result_;
}

}  // namespace heddle::elastic
