// Decides when another generation is looked for, and with which plan.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "elastic/control/transition/transitions.h"
#include "elastic/control/transition/worth.h"

namespace heddle::elastic {
namespace {

// True if all members are there. A worker that a plan counts on may be gone when the plan is found.
bool AreThere(const std::vector<std::string>& members, const Roster& roster) {
  return std::all_of(members.begin(), members.end(), [&](const std::string& name) {
    const Worker* worker = roster.Find(name);
    return worker != nullptr && worker->welcomed && worker->seen && !worker->profile_json.empty();
  });
}

// Notes why a change is looked for: workers that leave, have joined or have drifted, among others.
void NoteChange(const Transition& change,
                Cause cause,
                const std::set<std::string>& considered,
                Scene& scene) {
  scene.decisions.Drop();  // Evidence for a change that was given up just before.
  for (const auto& [name, worker] : scene.roster.workers()) {
    if (worker.draining && scene.generations.IsMember(name)) {
      scene.decisions.Note({.worker = name, .what = "leaves: " + worker.leave_reason});
    } else if (worker.IsCandidate() && considered.count(name) == 0) {
      scene.decisions.Note({.worker = name, .what = "joined"});
    } else if (change.for_drift && scene.drift.WasNoticed(name)) {
      scene.decisions.Note({.worker = name,
                            .what = "its speed has changed",
                            .slowdown = scene.drift.SlowdownOf(name)});
    }
  }
  if (const auto& link = scene.link_drift.noticed(); change.for_drift && link) {
    scene.decisions.Note(
        {.worker = link->from,
         .what = fmt::format("its link to {} carries {:.3g} MB/s, {:.3g} MB/s "
                             "were planned with",
                             link->to, link->measured / 1e6, link->planned / 1e6)});
  }
  if (cause == Cause::kTakeBack) {
    scene.decisions.Note({.worker = "", .what = "steps take longer than before the last change"});
  }
  if (cause == Cause::kImprove) {
    scene.decisions.Note({.worker = "", .what = "the plan in force was found in a hurry"});
  }
  scene.decisions.Begin(cause);
}

// The plan before the one in force, if that one made steps slower.
std::optional<FormerPlan> TakeBack(Scene& scene) {
  const auto& promise = scene.outcomes.promise();
  const JobPolicy& policy = scene.job.policy;
  const auto& workers = scene.roster.workers();
  const auto leaves = [](const auto& worker) { return worker.second.draining; };
  const auto is_there = [&](const std::string& name) {
    const Worker* worker = scene.roster.Find(name);
    return worker != nullptr && worker->IsCandidate();
  };
  return scene.outcomes.Judge(
      scene.steps.times(),
      {.steady = scene.drift.AreSteady(scene.generations, policy.drift),
       .possible = promise && std::ranges::none_of(workers, leaves) &&
                   std::ranges::all_of(promise->change.members, is_there),
       .steps_left = static_cast<double>(policy.total_steps - scene.steps.known()),
       .gain_over_cost = policy.drift.gain_over_cost},
      scene.out);
}

// The change for which a plan is looked for.
Change ChangeOf(const std::set<std::string>& candidates, const Scene& scene) {
  Change change{.members = scene.generations.held()->plan.members, .candidates = {}};
  for (const std::string& name : candidates) {
    change.candidates[name] = {.profile = Hash64(scene.roster.at(name).profile_json),
                               .slowdown = scene.drift.SlowdownOf(name)};
  }
  return change;
}

// True if the change that has just begun was taken back before. Not if links have changed, because
// then it is another change.
bool WasTakenBack(const Scene& scene) {
  const JobPolicy& policy = scene.job.policy;
  const auto able = AbleFor(Transition::Kind::kChange, scene.roster, policy.min_workers);
  return !scene.link_drift.noticed() &&
         scene.outcomes.WasTakenBack(ChangeOf(able, scene), policy.drift.threshold);
}

// Notices drift of workers and links. True if a change is looked for because of it.
bool NoticeDrift(bool measured, bool comes, Scene& scene) {
  const DriftPolicy& policy = scene.job.policy.drift;
  scene.link_drift.Drop();
  if (policy.action == DriftAction::kAdvise && comes) {
    return false;  // A plan that is not put in force would leave out joining workers.
  }
  if (!scene.drift.Notice(scene.generations, policy, scene.now, scene.out) &&
      !scene.link_drift.Notice(measured, scene.generations, scene.roster, policy, scene.now,
                               scene.links, scene.out)) {
    return false;
  }
  scene.outcomes.Drop();
  if (scene.drift.great()) {
    scene.steps.ForgetTimes();
  }
  if (policy.action == DriftAction::kObserve) {
    AnswerDrift(scene);
    return false;
  }
  return true;
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
      return {.end = EndJob{false, false,
                            scene.recoveries.WithFirstLoss(fmt::format(
                                "{} of at least {} workers came", count, policy.min_workers))}};
    case Formation::Verdict::kWait:
      return {};
    case Formation::Verdict::kForm:
      break;
  }
  if (!scene.links.Settled(scene.roster, policy.links, scene.now, scene.out)) {
    return {};
  }
  std::vector<SourceOption> options =
      scene.sources.Options({}, scene.generations, scene.steps, scene.saves, policy.recovery);
  if (options.empty()) {
    return NoSoundCheckpoint(scene);
  }
  SourceOption& stored = options.front();
  scene.decisions.Begin(Cause::kForm);
  scene.decisions.Note(
      {.worker = "", .what = fmt::format("{} of {} workers came", count, policy.initial_workers)});
  scene.decisions.WeighSources(options, policy);
  scene.recoveries.CountOnAll();
  const int64_t generation = scene.generations.counter() + 1;
  current_ = Transition{.kind = Transition::Kind::kForm,
                        .fence = generation,
                        .generation = generation,
                        .steps_repeated = std::max<int64_t>(0, scene.steps.known() - stored.step)};
  return AskForPlan({.origin = std::move(stored)}, scene);
}

Consequence Transitions::Consider(Scene& scene) {
  bool leaves = false;
  bool joins = false;
  bool waits = false;
  for (const auto& [name, worker] : scene.roster.workers()) {
    if (worker.absent && scene.generations.IsMember(name)) {
      return {};  // It trains on; a change would wait for its reply, and count it as lost.
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
  const bool measured =
      !waits && scene.links.Settled(scene.roster, policy.links, scene.now, scene.out);
  const bool come = joins && measured;
  const std::optional<FormerPlan> former = TakeBack(scene);
  const bool drifts = !leaves && !former && NoticeDrift(measured, joins || waits, scene);
  const bool improves = improve_at_ && scene.now >= *improve_at_;
  if (!leaves && !former && !drifts && !come && !improves) {
    return {};
  }
  improve_at_.reset();
  current_ = Transition{.kind = Transition::Kind::kChange,
                        .fence = scene.generations.counter() + 1,
                        .generation = scene.generations.counter() + 2,
                        .for_drift = drifts,
                        .former = former};
  NoteChange(*current_,
             leaves   ? Cause::kLeave
             : former ? Cause::kTakeBack
             : drifts ? Cause::kDrift
             : come   ? Cause::kJoin
                      : Cause::kImprove,
             considered_, scene);
  Planning planning{.origin = {.source = Source::kLive}, .forced = leaves};
  for (const auto& [name, incarnation] : scene.generations.held()->members) {
    planning.origin.holders.push_back(name);
  }
  return !leaves && !former && WasTakenBack(scene) ? KeepTried(scene)
                                                   : AskForPlan(std::move(planning), scene);
}

Consequence Transitions::KeepTried(Scene& scene) {
  considered_.merge(AbleFor(current_->kind, scene.roster, scene.job.policy.min_workers));
  const std::string tried = "the same change was tried before, and steps took longer";
  scene.decisions.WeighPlans({{.what = "keep"}, {.what = "replan", .note = tried}}, "keep", tried,
                             0);
  return KeepPlan(scene);
}

// ---- Plan ----

Consequence Transitions::AskForPlan(Planning planning, Scene& scene) {
  const JobPolicy& policy = scene.job.policy;
  const std::set<std::string> able = AbleFor(current_->kind, scene.roster, policy.min_workers);
  planning.asked = current_->kind == Transition::Kind::kChange
                       ? able
                       : scene.recoveries.CountOn(able, scene.roster, policy.min_workers);
  if (const auto& former = current_->former) {
    const std::vector<std::string>& members = former->members;
    planning.asked = {members.begin(), members.end()};
  }
  planning.request = next_request_++;
  planning.deadline = scene.now + policy.plan_timeout;
  planning.retry_at.reset();
  current_->stage = std::move(planning);
  const Planning& asking = *current_->In<Planning>();
  if (asking.asked.empty() || (current_->kind == Transition::Kind::kRecover &&
                               static_cast<int>(asking.asked.size()) < policy.min_workers)) {
    return RefusePlan(ResourceExhaustedError("{} of at least {} workers are left",
                                             asking.asked.size(), policy.min_workers),
                      scene);
  }
  if (current_->former && !std::ranges::includes(able, asking.asked)) {
    return RefusePlan(UnavailableError("not all of its members are there"), scene);
  }
  PlanRequest request;
  request.former_plan_json = current_->former ? current_->former->plan_json : "";
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
  // A plan that comes late is as good as one in time, unless another has been requested since.
  if (planning == nullptr || outcome.request_id != planning->request || planning->retry_at) {
    return {};
  }
  if (!outcome.status.ok()) {
    return RefusePlan(outcome.status, scene);
  }
  if (current_->kind == Transition::Kind::kChange) {
    Worth worth = WorthOf(outcome, *current_, scene);
    scene.decisions.WeighPlans(std::move(worth.plans), worth.changes ? "replan" : "keep",
                               std::move(worth.reason), worth.cost_seconds, worth.scale);
    if (!worth.changes) {
      return KeepPlan(scene);
    }
    if (!planning->forced && !current_->former) {
      current_->promise = Promise{.change = ChangeOf(planning->asked, scene),
                                  .plan_json = scene.generations.held()->plan.plan_json,
                                  .before = scene.steps.times().Newest(),
                                  .step_seconds = worth.step_seconds,
                                  .cost_seconds = worth.cost_seconds};
    }
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

Consequence Transitions::KeepPlan(Scene& scene) {
  scene.decisions.LogKept(scene.generations.held()->number, scene.out);
  if (current_->for_drift) {
    AnswerDrift(scene);
  }
  current_.reset();
  return {};
}

Consequence Transitions::RefusePlan(const Status& status, Scene& scene, bool asks_again) {
  if (current_->kind == Transition::Kind::kChange) {
    const bool forced = current_->In<Planning>()->forced;
    if (!forced) {
      scene.decisions.WeighPlans({{.what = "keep"}, {.what = "replan", .note = status.ToString()}},
                                 "keep", "no other plan was found: " + status.ToString(), 0);
      return KeepPlan(scene);
    }
    current_.reset();
    if (AnyNoticed(scene.roster)) {
      return {.suspend = status.ToString()};
    }
    RefuseDrains(scene.roster, status.ToString(), scene.out);
    return {};
  }
  if (current_->stuck.empty()) {
    scene.out.Log("paused", {{"reason", status.ToString()}});
  }
  current_->stuck = status.ToString();
  const JobPolicy& policy = scene.job.policy;
  current_->retry_after =
      std::clamp(2 * current_->retry_after, policy.first_retry, policy.last_retry);
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
