// From workers to a plan in force: plan, Prepare, (Stop), Start, Go.
#include <algorithm>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {
namespace {

constexpr Duration kPlanTimeout = std::chrono::seconds(120);
// What a change costs beside moving bytes: stopping, connecting, the first step's cold caches.
constexpr double kFixedChangeSeconds = 0.1;
// A gain below this is within the error of the prediction.
constexpr double kLeastGain = 0.02;

std::set<std::string> CandidateNames(const std::map<std::string, Worker>& workers) {
  std::set<std::string> names;
  for (const auto& [name, worker] : workers) {
    if (worker.welcomed && worker.seen && !worker.draining && !worker.profile_json.empty()) {
      names.insert(name);
    }
  }
  return names;
}

}  // namespace

// ---- When ----

void Coordinator::State::FormIfReady(Time now) {
  if (phase != Phase::kForming || transition) {
    return;
  }
  const auto count = static_cast<int>(CandidateNames(workers).size());
  if (!forming_late && now - *forming_since >= policy().formation_timeout) {
    forming_late = true;
  }
  if (count < (forming_late ? policy().min_workers : policy().initial_workers) || count == 0) {
    if (forming_late && policy().paused_timeout > Duration(0) &&
        now - *forming_since >= policy().formation_timeout + policy().paused_timeout) {
      End(false, false, fmt::format("{} of at least {} workers came", count, policy().min_workers),
          now);
    }
    return;
  }
  if (!LinksSettled(now)) {
    return;
  }
  const std::optional<SourceOption> stored = StoredSource();
  if (!stored) {
    return End(false, true, "no checkpoint is sound: " + unsound, now);
  }
  transition.emplace();
  transition->kind = Transition::Kind::kForm;
  transition->generation = generation_counter + 1;
  transition->fence = transition->generation;
  transition->source = stored->source;
  transition->applied_step = stored->step;
  transition->steps_repeated = std::max<int64_t>(0, known_step - transition->applied_step);
  AskForPlan(now);
}

void Coordinator::State::ConsiderChange(Time now) {
  if (phase != Phase::kRunning || transition || !accusations.empty() || !finished.empty() ||
      known_step >= policy().total_steps) {
    return;
  }
  std::vector<std::string> released;
  bool leaves = false;
  bool joins = false;
  bool waits = false;
  for (auto& [name, worker] : workers) {
    if (worker.draining) {
      if (IsMember(name)) {
        leaves = true;
      } else if (worker.welcomed) {
        released.push_back(name);
      }
    } else if (worker.welcomed && worker.seen && worker.profile_json.empty()) {
      waits = true;
    } else if (!worker.considered && worker.welcomed && worker.seen) {
      joins = true;
    }
  }
  for (const std::string& name : released) {
    wire::Release release;
    release.set_reason(workers.at(name).leave_reason);
    SendTo(workers.at(name), release);
    Log("worker_left", {{"worker", name}, {"reason", workers.at(name).leave_reason}});
    Dismiss(name, "released");
  }
  waits = waits || !LinksSettled(now);
  const bool drifts = !leaves && NoticeDrift(now);
  if (!leaves && !drifts && !(joins && !waits)) {
    return;
  }
  transition.emplace();
  transition->kind = Transition::Kind::kChange;
  transition->fence = generation_counter + 1;
  transition->generation = generation_counter + 2;
  transition->forced = leaves;
  transition->for_drift = drifts;
  transition->source = Source::kLive;
  for (const auto& [name, incarnation] : held->members) {
    transition->holders.push_back(name);
  }
  AskForPlan(now);
}

// ---- Plan ----

void Coordinator::State::AskForPlan(Time now) {
  Transition& t = *transition;
  t.stage = Transition::Stage::kPlan;
  t.awaited.clear();
  t.asked = CandidateNames(workers);
  if (t.asked.empty()) {  // The last ones must stay: without them there is no job.
    RefuseDrains("no other worker is left");
    t.asked = CandidateNames(workers);
  }
  t.plan_request = next_plan_request++;
  if (t.asked.empty() || (t.kind == Transition::Kind::kRecover &&
                          static_cast<int>(t.asked.size()) < policy().min_workers)) {
    return OnPlanRefused(ResourceExhaustedError("{} of at least {} workers are left",
                                                t.asked.size(), policy().min_workers),
                         now);
  }
  t.deadline = now + kPlanTimeout;
  PlanRequest request;
  request.id = t.plan_request;
  request.generation = t.generation;
  for (const std::string& name : t.asked) {
    Worker& worker = workers.at(name);
    worker.considered = true;
    Candidate candidate;
    candidate.name = name;
    candidate.host = worker.host;
    candidate.profile_json = worker.profile_json;
    candidate.slowdown = worker.slowdown;
    candidate.holds_state =
        t.source == Source::kLive && std::binary_search(t.holders.begin(), t.holders.end(), name);
    request.candidates.push_back(std::move(candidate));
  }
  request.links = LinksOf({t.asked.begin(), t.asked.end()});
  if (held) {
    request.current_plan_json = held->plan.plan_json;
  }
  request.current_runs = t.kind == Transition::Kind::kChange;
  actions.emplace_back(FindPlan{std::move(request)});
}

void Coordinator::State::On(const Planned& event, Time now) {
  if (!transition || transition->stage != Transition::Stage::kPlan ||
      event.outcome.request_id != transition->plan_request || transition->stuck_since) {
    return;
  }
  if (!event.outcome.status.ok()) {
    return OnPlanRefused(event.outcome.status, now);
  }
  if (transition->kind == Transition::Kind::kChange && !transition->forced &&
      !WorthChanging(event.outcome)) {
    if (transition->for_drift) {
      DriftChanged(now);
    }
    transition.reset();
    return;
  }
  for (const std::string& name : event.outcome.members) {
    if (transition->asked.count(name) == 0) {
      return OnPlanRefused(InternalError("the plan names {}, which is no candidate", name), now);
    }
  }
  transition->plan = event.outcome;
  SendPrepare(now);
}

bool Coordinator::State::WorthChanging(const PlanOutcome& outcome) const {
  const double current = outcome.current_step_seconds > 0 ? outcome.current_step_seconds
                                                          : held->plan.predicted_step_seconds;
  const auto horizon = static_cast<double>(policy().total_steps - known_step);
  const double gain = (current - outcome.predicted_step_seconds) * horizon;
  const double cost = outcome.move_seconds + kFixedChangeSeconds;
  return outcome.predicted_step_seconds < (1 - kLeastGain) * current &&
         gain > policy().drift.gain_over_cost * cost;
}

void Coordinator::State::RefuseDrains(const std::string& reason) {
  for (auto& [name, worker] : workers) {
    if (worker.draining) {
      Log("drain_refused", {{"worker", name}, {"reason", reason}});
      worker.draining = false;
    }
  }
}

void Coordinator::State::OnPlanRefused(const Status& status, Time now) {
  Transition& t = *transition;
  t.deadline.reset();
  if (t.kind == Transition::Kind::kChange) {
    RefuseDrains(status.ToString());
    transition.reset();
    return;
  }
  if (t.stuck.empty()) {
    Log("paused", {{"reason", status.ToString()}});
  }
  t.stuck = status.ToString();
  if (!t.stuck_since) {
    t.stuck_since = now;
  }
}

// ---- Prepare ----

wire::Prepare Coordinator::State::MakePrepare() const {
  wire::Prepare message;
  message.set_generation(transition->generation);
  message.set_plan_json(transition->plan.plan_json);
  for (const std::string& name : transition->plan.members) {
    wire::Member& member = *message.add_members();
    member.set_name(name);
    member.set_address(workers.at(name).data_address);
  }
  *message.mutable_links() = transition->links;
  for (const std::vector<int32_t>& ranks : transition->keepers) {
    message.add_keepers()->mutable_ranks()->Assign(ranks.begin(), ranks.end());
  }
  return message;
}

void Coordinator::State::SendPrepare(Time now) {
  Transition& t = *transition;
  t.stage = Transition::Stage::kPrepare;
  t.stuck_since.reset();
  t.participants = t.plan.members;
  for (const std::string& name : t.holders) {
    if (Find(name) != nullptr &&
        std::find(t.participants.begin(), t.participants.end(), name) == t.participants.end()) {
      t.participants.push_back(name);
    }
  }
  t.links = LinksOf(t.participants);
  t.keepers = KeepersOf(t.plan);
  t.awaited = {t.participants.begin(), t.participants.end()};
  t.deadline = now + policy().reply_timeout;
  generation_counter = std::max(generation_counter, t.generation);
  SaveState(now);
  const wire::Prepare message = MakePrepare();
  for (const std::string& name : t.participants) {
    SendTo(workers.at(name), message);
  }
}

void Coordinator::State::OnPrepared(Worker& worker, const wire::Prepared& message, Time now) {
  if (!transition || transition->stage != Transition::Stage::kPrepare ||
      message.generation() != transition->generation ||
      transition->awaited.count(worker.name) == 0) {
    return;
  }
  const auto& members = transition->plan.members;
  const auto rank =
      static_cast<size_t>(std::find(members.begin(), members.end(), worker.name) - members.begin());
  if (!message.error().empty()) {
    return Lose(worker.name, "cannot prepare the plan: " + message.error(), now);
  }
  if (rank < transition->plan.program_hashes.size() &&
      message.program_hash() != transition->plan.program_hashes[rank]) {
    return Lose(worker.name, "its program differs from the coordinator's: another build?", now);
  }
  transition->awaited.erase(worker.name);
  if (!transition->awaited.empty()) {
    return;
  }
  if (transition->kind == Transition::Kind::kChange) {
    SendStop(now);
  } else {
    SendStart(now);
  }
}

// ---- Stop ----

void Coordinator::State::SendStop(Time now) {
  Transition& t = *transition;
  t.stage = Transition::Stage::kStop;
  t.deadline = now + policy().stop_timeout;
  t.applied_step = -1;
  for (const auto& [name, incarnation] : held->members) {
    t.awaited.insert(name);
  }
  wire::Stop stop;
  stop.set_generation(held->number);
  for (const std::string& name : t.awaited) {
    SendTo(workers.at(name), stop);
  }
}

void Coordinator::State::OnStopped(Worker& worker,
                                   int64_t generation,
                                   int64_t applied_step,
                                   Time now) {
  if (!transition || transition->kind != Transition::Kind::kChange ||
      transition->stage != Transition::Stage::kStop || generation != held->number ||
      transition->awaited.erase(worker.name) == 0) {
    return;
  }
  if (transition->applied_step >= 0 && transition->applied_step != applied_step) {
    return BeginRecovery(now);
  }
  transition->applied_step = applied_step;
  if (!transition->awaited.empty()) {
    return;
  }
  if (finished.size() == held->members.size()) {
    transition.reset();
    return;
  }
  SendStart(now);
}

// ---- Too late ----

void Coordinator::State::CheckStageDeadline(Time now) {
  if (!transition) {
    return;
  }
  Transition& t = *transition;
  if (t.stuck_since) {
    if (CandidateNames(workers) != t.asked && LinksSettled(now)) {
      t.stuck_since.reset();
      return AskForPlan(now);
    }
    if (policy().paused_timeout > Duration(0) && now - *t.stuck_since >= policy().paused_timeout) {
      return End(false, t.kind == Transition::Kind::kForm, "no plan: " + t.stuck, now);
    }
    return;
  }
  if (!t.deadline || now < *t.deadline) {
    return;
  }
  switch (t.stage) {
    case Transition::Stage::kPlan:
      return OnPlanRefused(
          DeadlineExceededError("no plan was found in {:.0f} s", Seconds(kPlanTimeout)), now);
    case Transition::Stage::kStop:
      return BeginRecovery(now);
    case Transition::Stage::kHalt:
    case Transition::Stage::kPrepare:
    case Transition::Stage::kMove: {
      const std::set<std::string> late = t.awaited;
      for (const std::string& name : late) {
        Lose(name, "it did not answer in time", now);
      }
      return;
    }
  }
}

}  // namespace heddle::elastic
