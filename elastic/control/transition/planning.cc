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
                TransitionContext& context) {
  context.decisions.Drop();  // Evidence for a change that was given up just before.
  for (const auto& [name, worker] : context.roster.workers()) {
    if (worker.draining && context.generations.IsMember(name)) {
      context.decisions.Note({.worker = name, .what = "leaves: " + worker.leave_reason});
    } else if (worker.IsCandidate() && considered.count(name) == 0) {
      context.decisions.Note({.worker = name, .what = "joined"});
    } else if (change.for_drift && context.drift.WasNoticed(name)) {
      context.decisions.Note({.worker = name,
                              .what = "its speed has changed",
                              .slowdown = context.drift.SlowdownOf(name)});
    }
  }
  if (const auto& link = context.link_drift.noticed()) {
    context.decisions.Note(
        {.worker = link->from,
         .what = fmt::format("its link to {} carries {:.3g} MB/s, {:.3g} MB/s "
                             "were planned with",
                             link->to, link->measured / 1e6, link->planned / 1e6)});
  }
  if (cause == Cause::kTakeBack) {
    context.decisions.Note({.worker = "", .what = "steps take longer than before the last change"});
  }
  if (cause == Cause::kImprove) {
    context.decisions.Note({.worker = "", .what = "the plan in force was found in a hurry"});
  }
  context.decisions.Begin(cause);
}

// The plan before the one in force, if that one made steps slower.
std::optional<FormerPlan> TakeBack(TransitionContext& context) {
  const auto& promise = context.outcomes.promise();
  const JobPolicy& policy = context.job.policy;
  const auto& workers = context.roster.workers();
  const auto leaves = [](const auto& worker) { return worker.second.draining; };
  const auto is_there = [&](const std::string& name) {
    const Worker* worker = context.roster.Find(name);
    return worker != nullptr && worker->IsCandidate();
  };
  return context.outcomes.Judge(
      context.steps.times(),
      {.steady = context.drift.AreSteady(context.generations, policy.drift),
       .possible = promise && std::ranges::none_of(workers, leaves) &&
                   std::ranges::all_of(promise->change.members, is_there),
       .steps_left = static_cast<double>(policy.total_steps - context.steps.known()),
       .gain_over_cost = policy.drift.gain_over_cost},
      context.out);
}

// The change for which a plan is looked for.
Change ChangeOf(const std::set<std::string>& candidates, const TransitionContext& context) {
  Change change{.members = context.generations.held()->plan.members, .candidates = {}};
  for (const std::string& name : candidates) {
    change.candidates[name] = {.profile = Hash64(context.roster.at(name).profile_json),
                               .slowdown = context.drift.SlowdownOf(name)};
  }
  return change;
}

// True if the change that has just begun was taken back before. Not if links have changed, because
// then it is another change.
bool WasTakenBack(const TransitionContext& context) {
  const JobPolicy& policy = context.job.policy;
  const auto able = AbleFor(Transition::Kind::kChange, context.roster, policy.min_workers);
  return !context.link_drift.noticed() &&
         context.outcomes.WasTakenBack(ChangeOf(able, context), policy.drift.threshold);
}

LinkDrift::View ViewOf(bool measured, const TransitionContext& context) {
  return {.measured = measured,
          .generations = context.generations,
          .roster = context.roster,
          .policy = context.job.policy.drift,
          .now = context.now};
}

// Notices drift of workers and links, neither of which hides the other. True if a change is looked
// for because of it.
bool NoticeDrift(bool measured, bool comes, TransitionContext& context) {
  const DriftPolicy& policy = context.job.policy.drift;
  if (policy.action == DriftAction::kAdvise && comes) {
    return false;  // A plan that is not put in force would leave out joining workers.
  }
  const bool workers = context.drift.Notice(context.generations, policy, context.now, context.out);
  const bool links =
      context.link_drift.Notice(ViewOf(measured, context), context.links, context.out);
  if (!workers && !links) {
    return false;
  }
  context.outcomes.Drop();
  if (context.drift.great()) {
    context.steps.ForgetTimes();
  }
  if (policy.action == DriftAction::kObserve) {
    AnswerDrift(context);
    return false;
  }
  return true;
}

Effects NoSoundCheckpoint(const TransitionContext& context) {
  return {.end = EndJob{false, true, "no checkpoint is sound: " + context.saves.unsound()}};
}

}  // namespace

// ---- When ----

Effects Transitions::Form(TransitionContext& context) {
  const JobPolicy& policy = context.job.policy;
  const auto count = static_cast<int>(CandidatesOf(context.roster).size());
  switch (context.formation.Look(count, policy, context.now)) {
    case Formation::Verdict::kGiveUp:
      return {.end = EndJob{false, false,
                            context.recoveries.WithFirstLoss(fmt::format(
                                "{} of at least {} workers came", count, policy.min_workers))}};
    case Formation::Verdict::kWait:
      return {};
    case Formation::Verdict::kForm:
      break;
  }
  if (!context.links.Settled(context.roster, policy.links, context.now, context.out)) {
    return {};
  }
  std::vector<SourceOption> options = context.sources.Options(
      {}, context.generations, context.steps, context.saves, policy.recovery);
  if (options.empty()) {
    return NoSoundCheckpoint(context);
  }
  SourceOption& stored = options.front();
  context.decisions.Begin(Cause::kForm);
  context.decisions.Note(
      {.worker = "", .what = fmt::format("{} of {} workers came", count, policy.initial_workers)});
  context.decisions.WeighSources(options, policy);
  context.recoveries.CountOnAll();
  const int64_t generation = context.generations.counter() + 1;
  current_ =
      Transition{.kind = Transition::Kind::kForm,
                 .fence = generation,
                 .generation = generation,
                 .steps_repeated = std::max<int64_t>(0, context.steps.known() - stored.step)};
  return AskForPlan({.origin = std::move(stored)}, context);
}

Effects Transitions::Consider(TransitionContext& context) {
  bool leaves = false;
  bool joins = false;
  bool waits = false;
  for (const auto& [name, worker] : context.roster.workers()) {
    if (worker.absent && context.generations.IsMember(name)) {
      return {};  // It trains on; a change would wait for its reply, and count it as lost.
    }
    if (worker.draining) {
      leaves = leaves || context.generations.IsMember(name);
    } else if (!worker.welcomed || !worker.seen || worker.absent) {
      continue;
    } else if (worker.profile_json.empty()) {
      waits = true;
    } else if (considered_.count(name) == 0) {
      joins = true;
    }
  }
  const JobPolicy& policy = context.job.policy;
  const bool measured =
      !waits && context.links.Settled(context.roster, policy.links, context.now, context.out);
  const bool come = joins && measured;
  const std::optional<FormerPlan> former = TakeBack(context);
  context.link_drift.Drop();
  const bool drifts = !leaves && !former && NoticeDrift(measured, joins || waits, context);
  const bool improves = improve_at_ && context.now >= *improve_at_;
  if (!leaves && !former && !drifts && !come && !improves) {
    return {};
  }
  improve_at_.reset();
  if (!former) {
    context.drift.CountOnMeasured(context.generations, policy.drift);
  }
  context.link_drift.NoticeForChange(ViewOf(measured, context), context.links, context.out);
  current_ = Transition{.kind = Transition::Kind::kChange,
                        .fence = context.generations.counter() + 1,
                        .generation = context.generations.counter() + 2,
                        .for_drift = drifts,
                        .former = former};
  NoteChange(*current_,
             leaves   ? Cause::kLeave
             : former ? Cause::kTakeBack
             : drifts ? Cause::kDrift
             : come   ? Cause::kJoin
                      : Cause::kImprove,
             considered_, context);
  Planning planning{.origin = {.source = Source::kLive}, .forced = leaves};
  for (const auto& [name, incarnation] : context.generations.held()->members) {
    planning.origin.holders.push_back(name);
  }
  return !leaves && !former && WasTakenBack(context) ? KeepTried(context)
                                                     : AskForPlan(std::move(planning), context);
}

Effects Transitions::KeepTried(TransitionContext& context) {
  considered_.merge(AbleFor(current_->kind, context.roster, context.job.policy.min_workers));
  const std::string tried = "the same change was tried before, and steps took longer";
  context.decisions.WeighPlans({{.what = "keep"}, {.what = "replan", .note = tried}}, "keep", tried,
                               0);
  return KeepPlan(context);
}

// ---- Plan ----

Effects Transitions::AskForPlan(Planning planning, TransitionContext& context) {
  const JobPolicy& policy = context.job.policy;
  const std::set<std::string> able = AbleFor(current_->kind, context.roster, policy.min_workers);
  planning.asked = current_->kind == Transition::Kind::kChange
                       ? able
                       : context.recoveries.CountOn(able, context.roster, policy.min_workers);
  if (const auto& former = current_->former) {
    const std::vector<std::string>& members = former->members;
    planning.asked = {members.begin(), members.end()};
  }
  planning.request = next_request_++;
  planning.deadline = context.now + policy.plan_timeout;
  planning.retry_at.reset();
  current_->stage = std::move(planning);
  Planning& asking = *current_->In<Planning>();
  if (asking.asked.empty() || (current_->kind == Transition::Kind::kRecover &&
                               static_cast<int>(asking.asked.size()) < policy.min_workers)) {
    return RefusePlan(ResourceExhaustedError("{} of at least {} workers are left",
                                             asking.asked.size(), policy.min_workers),
                      context);
  }
  if (current_->former && !std::ranges::includes(able, asking.asked)) {
    return RefusePlan(UnavailableError("not all of its members are there"), context);
  }
  PlanRequest request;
  request.former_plan_json = current_->former ? current_->former->plan_json : "";
  request.id = asking.request;
  request.generation = current_->generation;
  for (const std::string& name : asking.asked) {
    considered_.insert(name);
    const Worker& worker = context.roster.at(name);
    Candidate candidate;
    candidate.name = name;
    candidate.host = worker.host;
    candidate.profile_json = worker.profile_json;
    candidate.slowdown = context.drift.SlowdownOf(name);
    candidate.holds_state =
        asking.origin.source == Source::kLive &&
        std::binary_search(asking.origin.holders.begin(), asking.origin.holders.end(), name);
    request.candidates.push_back(std::move(candidate));
  }
  asking.links.workers = {asking.asked.begin(), asking.asked.end()};
  asking.links.links = context.links.LinksOf(asking.links.workers, context.roster);
  request.links = asking.links.links;
  if (context.generations.held()) {
    request.current_plan_json = context.generations.held()->plan.plan_json;
  }
  request.current_runs = current_->kind == Transition::Kind::kChange;
  context.out.Add(FindPlan{std::move(request)});
  return {};
}

Effects Transitions::OnPlanned(const PlanOutcome& outcome, TransitionContext& context) {
  Planning* planning = current_ ? current_->In<Planning>() : nullptr;
  // A plan that comes late is as good as one in time, unless another has been requested since.
  if (planning == nullptr || outcome.request_id != planning->request || planning->retry_at) {
    return {};
  }
  if (!outcome.status.ok()) {
    return RefusePlan(outcome.status, context);
  }
  if (current_->kind == Transition::Kind::kChange) {
    Worth worth = WorthOf(outcome, *current_, context);
    context.decisions.WeighPlans(std::move(worth.plans), worth.changes ? "replan" : "keep",
                                 std::move(worth.reason), worth.cost_seconds, worth.scale);
    if (!worth.changes) {
      return KeepPlan(context);
    }
    if (!planning->forced && !current_->former) {
      current_->promise = Promise{.change = ChangeOf(planning->asked, context),
                                  .plan_json = context.generations.held()->plan.plan_json,
                                  .before = context.steps.times().Newest(),
                                  .step_seconds = worth.step_seconds,
                                  .cost_seconds = worth.cost_seconds};
    }
  }
  for (const std::string& name : outcome.members) {
    if (planning->asked.count(name) == 0) {
      return RefusePlan(InternalError("the plan names {}, which is no candidate", name), context);
    }
  }
  if (!AreThere(outcome.members, context.roster)) {
    return AskForPlan(std::move(*planning), context);
  }
  return SendPrepare(outcome, context);
}

Effects Transitions::KeepPlan(TransitionContext& context) {
  context.decisions.LogKept(context.generations.held()->number, context.out);
  if (current_->for_drift) {
    AnswerDrift(context);
  }
  current_.reset();
  return {};
}

Effects Transitions::RefusePlan(const Status& status, TransitionContext& context, bool asks_again) {
  if (current_->kind == Transition::Kind::kChange) {
    const bool forced = current_->In<Planning>()->forced;
    if (!forced) {
      context.decisions.WeighPlans(
          {{.what = "keep"}, {.what = "replan", .note = status.ToString()}}, "keep",
          "no other plan was found: " + status.ToString(), 0);
      return KeepPlan(context);
    }
    current_.reset();
    if (AnyNoticed(context.roster)) {
      return {.suspend = status.ToString()};
    }
    RefuseDrains(context.roster, status.ToString(), context.out);
    return {};
  }
  if (current_->stuck.empty()) {
    context.out.Log("paused", {{"reason", status.ToString()}});
  }
  current_->stuck = status.ToString();
  const JobPolicy& policy = context.job.policy;
  current_->retry_after =
      std::clamp(2 * current_->retry_after, policy.first_retry, policy.last_retry);
  context.recoveries.CountOnAll();
  Planning& planning = *current_->In<Planning>();
  planning.deadline.reset();
  planning.stuck_since = planning.stuck_since.value_or(context.now);
  if (asks_again) {
    planning.retry_at = context.now + current_->retry_after;
  }
  return {};
}

}  // namespace heddle::elastic
