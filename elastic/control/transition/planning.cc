// When another generation is worth looking for, and with which plan.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {
namespace {

// What a change costs beside moving bytes: stopping, connecting, the first step's cold caches.
constexpr double kFixedChangeSeconds = 0.1;
// Between questions for a plan that was refused: doubled from the first to the last.
constexpr Duration kFirstRetry = std::chrono::seconds(2);
constexpr Duration kLastRetry = std::chrono::minutes(1);
// A gain below this is within the error of the prediction.
constexpr double kLeastGain = 0.02;

bool WorthChanging(const PlanOutcome& outcome, bool for_drift, const Scene& scene) {
  const JobPolicy& policy = scene.job.policy;
  const double current = outcome.current_step_seconds > 0
                             ? outcome.current_step_seconds
                             : scene.generations.held()->plan.predicted_step_seconds;
  const auto horizon = static_cast<double>(policy.total_steps - scene.steps.known());
  const double gain = (current - outcome.predicted_step_seconds) * horizon;
  const double cost = outcome.move_seconds + kFixedChangeSeconds;
  const double least = for_drift ? std::max(kLeastGain, scene.drift.noise()) : kLeastGain;
  return outcome.predicted_step_seconds < (1 - least) * current &&
         gain > policy.drift.gain_over_cost * cost;
}

// What a plan counted on when it was looked for may be gone by the time that it is found.
bool AreThere(const std::vector<std::string>& members, const Roster& roster) {
  return std::all_of(members.begin(), members.end(), [&](const std::string& name) {
    const Worker* worker = roster.Find(name);
    return worker != nullptr && worker->welcomed && worker->seen && !worker->profile_json.empty();
  });
}

Consequence NoSoundCheckpoint(const Scene& scene) {
  return {.end = EndJob{false, true, "no checkpoint is sound: " + scene.saves.unsound()}};
}

}  // namespace

// ---- When ----

Consequence Transitions::Form(Scene& scene) {
  const JobPolicy& policy = scene.job.policy;
  const auto count = static_cast<int>(CandidatesOf(scene.roster).size());
  switch (scene.formation.Look(count, policy, scene.now)) {
    case Formation::Verdict::kGiveUp:
      return {.end =
                  EndJob{false, false,
                         fmt::format("{} of at least {} workers came", count, policy.min_workers)}};
    case Formation::Verdict::kWait:
      return {};
    case Formation::Verdict::kForm:
      break;
  }
  if (!scene.links.Settled(scene.roster, policy.links, scene.now, scene.out)) {
    return {};
  }
  std::optional<SourceOption> stored = scene.sources.Stored(scene.saves);
  if (!stored) {
    return NoSoundCheckpoint(scene);
  }
  scene.recoveries.CountOnAll();
  const int64_t generation = scene.generations.counter() + 1;
  current_ = Transition{.kind = Transition::Kind::kForm,
                        .fence = generation,
                        .generation = generation,
                        .steps_repeated = std::max<int64_t>(0, scene.steps.known() - stored->step)};
  return AskForPlan({.origin = *std::move(stored)}, scene);
}

Consequence Transitions::Consider(Scene& scene) {
  bool leaves = false;
  bool joins = false;
  bool waits = false;
  for (const auto& [name, worker] : scene.roster.workers()) {
    if (worker.absent && scene.generations.IsMember(name)) {
      return {};  // It trains on; a change would wait for its answers, and count it as lost.
    }
    if (worker.draining) {
      leaves = leaves || scene.generations.IsMember(name);
    } else if (!worker.welcomed || !worker.seen || worker.absent) {
      continue;
    } else if (worker.profile_json.empty()) {
      waits = true;
    } else if (considered_.count(name) == 0) {
      joins = true;
    }
  }
  const JobPolicy& policy = scene.job.policy;
  waits = waits || !scene.links.Settled(scene.roster, policy.links, scene.now, scene.out);
  const bool drifts =
      !leaves && scene.drift.Notice(scene.generations, policy.drift, scene.now, scene.out);
  if (!leaves && !drifts && !(joins && !waits)) {
    return {};
  }
  current_ = Transition{.kind = Transition::Kind::kChange,
                        .fence = scene.generations.counter() + 1,
                        .generation = scene.generations.counter() + 2,
                        .for_drift = drifts};
  Planning planning{.origin = {.source = Source::kLive}, .forced = leaves};
  for (const auto& [name, incarnation] : scene.generations.held()->members) {
    planning.origin.holders.push_back(name);
  }
  return AskForPlan(std::move(planning), scene);
}

// ---- Plan ----

Consequence Transitions::AskForPlan(Planning planning, Scene& scene) {
  const JobPolicy& policy = scene.job.policy;
  if (CandidatesOf(scene.roster).empty()) {  // Without the last ones there is no job.
    scene.roster.RefuseDrains("no other worker is left", scene.out);
  }
  planning.asked = current_->kind == Transition::Kind::kChange
                       ? CandidatesOf(scene.roster)
                       : scene.recoveries.CountOn(scene.roster, policy.min_workers);
  planning.request = next_request_++;
  planning.deadline = scene.now + kPlanTimeout;
  planning.retry_at.reset();
  current_->stage = std::move(planning);
  const Planning& asking = *current_->In<Planning>();
  if (asking.asked.empty() || (current_->kind == Transition::Kind::kRecover &&
                               static_cast<int>(asking.asked.size()) < policy.min_workers)) {
    return RefusePlan(ResourceExhaustedError("{} of at least {} workers are left",
                                             asking.asked.size(), policy.min_workers),
                      scene);
  }
  PlanRequest request;
  request.id = asking.request;
  request.generation = current_->generation;
  for (const std::string& name : asking.asked) {
    considered_.insert(name);
    const Worker& worker = scene.roster.at(name);
    Candidate candidate;
    candidate.name = name;
    candidate.host = worker.host;
    candidate.profile_json = worker.profile_json;
    candidate.slowdown = scene.drift.SlowdownOf(name);
    candidate.holds_state =
        asking.origin.source == Source::kLive &&
        std::binary_search(asking.origin.holders.begin(), asking.origin.holders.end(), name);
    request.candidates.push_back(std::move(candidate));
  }
  request.links = scene.links.LinksOf({asking.asked.begin(), asking.asked.end()}, scene.roster);
  if (scene.generations.held()) {
    request.current_plan_json = scene.generations.held()->plan.plan_json;
  }
  request.current_runs = current_->kind == Transition::Kind::kChange;
  scene.out.Add(FindPlan{std::move(request)});
  return {};
}

Consequence Transitions::OnPlanned(const PlanOutcome& outcome, Scene& scene) {
  Planning* planning = current_ ? current_->In<Planning>() : nullptr;
  // One that comes late is as good as one in time: nobody has asked for another since.
  if (planning == nullptr || outcome.request_id != planning->request || planning->retry_at) {
    return {};
  }
  if (!outcome.status.ok()) {
    return RefusePlan(outcome.status, scene);
  }
  if (current_->kind == Transition::Kind::kChange && !planning->forced &&
      !WorthChanging(outcome, current_->for_drift, scene)) {
    if (current_->for_drift) {
      scene.drift.Answered(scene.job.policy.drift, scene.now);
    }
    current_.reset();
    return {};
  }
  for (const std::string& name : outcome.members) {
    if (planning->asked.count(name) == 0) {
      return RefusePlan(InternalError("the plan names {}, which is no candidate", name), scene);
    }
  }
  if (!AreThere(outcome.members, scene.roster)) {
    return AskForPlan(std::move(*planning), scene);
  }
  return SendPrepare(outcome, scene);
}

Consequence Transitions::RefusePlan(const Status& status, Scene& scene, bool asks_again) {
  if (current_->kind == Transition::Kind::kChange) {
    scene.roster.RefuseDrains(status.ToString(), scene.out);
    current_.reset();
    return {};
  }
  if (current_->stuck.empty()) {
    scene.out.Log("paused", {{"reason", status.ToString()}});
  }
  current_->stuck = status.ToString();
  current_->retry_after = std::clamp(2 * current_->retry_after, kFirstRetry, kLastRetry);
  scene.recoveries.CountOnAll();
  Planning& planning = *current_->In<Planning>();
  planning.deadline.reset();
  planning.stuck_since = planning.stuck_since.value_or(scene.now);
  if (asks_again) {
    planning.retry_at = scene.now + current_->retry_after;
  }
  return {};
}

}  // namespace heddle::elastic
