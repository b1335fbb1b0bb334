// Recovers after a loss: fences, asks the survivors what they hold, and chooses where the state
// comes from. Puts a new generation in force.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/yaml/quote.h"
#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {
namespace {

void TellSources(const std::map<std::string, wire::Ready>& ready, Outbox& out) {
  std::map<std::string, int64_t> sources;
  int64_t bytes = 0;
  double seconds = 0;
  for (const auto& [name, message] : ready) {
    seconds = std::max(seconds, message.transfer_seconds());
    for (const auto& [kind, amount] : message.moved_bytes()) {
      sources[kind] += amount;
      bytes += amount;
    }
  }
  std::string text = "{";
  for (const auto& [kind, amount] : sources) {
    text += (text.size() > 1 ? ", " : "") + QuoteJson(kind) + ": " + std::to_string(amount);
  }
  out.Log("state_moved",
          {{"bytes", bytes}, {"sources", RawJson{text + "}"}}, {"seconds", seconds}});
}

// Starts to watch for drift from what the new plan counts on.
void BeginDrift(const PlannedLinks& links, bool for_drift, TransitionContext& context) {
  context.drift.BeginGeneration();
  context.link_drift.BeginGeneration(links);
  if (for_drift) {
    AnswerDrift(context);
  }
}

}  // namespace

Effects Transitions::Recover(Cause cause, TransitionContext& context) {
  const JobPolicy& policy = context.job.policy;
  if (auto end = context.recoveries.Begin(policy.max_recoveries_without_step, context.now)) {
    return {.end = std::move(end)};
  }
  context.decisions.Begin(cause);
  Halting halting;
  halting.coalesce_until = context.now + policy.coalesce;
  halting.deadline = context.now + policy.reply_timeout;
  for (const auto& [name, worker] : context.roster.workers()) {
    const bool took_part = current_ && current_->TakesPart(name);
    if (worker.welcomed && (context.generations.IsMember(name) || took_part)) {
      halting.awaited.insert(name);
    }
  }
  const std::vector<std::string> notified(halting.awaited.begin(), halting.awaited.end());
  current_ = Transition{.kind = Transition::Kind::kRecover,
                        .fence = context.generations.counter() + 1,
                        .generation = context.generations.counter() + 2,
                        .stage = std::move(halting)};
  context.generations.Allot(current_->generation);
  context.blame.Clear();
  context.steps.BeginGeneration();
  context.out.Persist();
  const wire::Halt halt = MakeHalt(*current_, context.steps.known());
  for (const std::string& name : notified) {
    context.out.Tell(context.roster.at(name).connection, halt);
  }
  return {};
}

bool Transitions::AwaitsHalted(const std::string& worker, int64_t fence) const {
  return current_ && current_->In<Halting>() != nullptr && fence == current_->fence &&
         current_->awaited().count(worker) > 0;
}

void Transitions::TakeHalted(const std::string& worker, const wire::Halted& message) {
  Halting& halting = *current_->In<Halting>();
  halting.awaited.erase(worker);
  halting.halted[worker] = message;
}

Effects Transitions::LeaveHalt(TransitionContext& context) {
  Halting* halting = current_ ? current_->In<Halting>() : nullptr;
  if (halting == nullptr || !halting->awaited.empty() || context.now < halting->coalesce_until) {
    return {};
  }
  std::vector<SourceOption> options =
      context.sources.Options(halting->halted, context.generations, context.steps, context.saves,
                              context.job.policy.recovery);
  if (options.empty()) {
    return {.end = EndJob{false, true, "no checkpoint is sound: " + context.saves.unsound()}};
  }
  std::string candidates;
  for (const SourceOption& option : options) {
    candidates += fmt::format(R"({}{{"source": "{}", "step": {}, "predicted_seconds": {:.9g}}})",
                              candidates.empty() ? "" : ", ", NameOf(option.source), option.step,
                              option.seconds);
  }
  context.decisions.WeighSources(options, context.job.policy);
  SourceOption& chosen = options.front();
  context.out.Log("recovery_source", {{"chosen", std::string(NameOf(chosen.source))},
                                      {"step", chosen.step},
                                      {"candidates", RawJson{"[" + candidates + "]"}}});
  current_->steps_repeated =
      std::max(current_->steps_repeated, context.steps.known() - chosen.step);
  return AskForPlan({.origin = std::move(chosen), .halted = std::move(halting->halted)}, context);
}

Effects Transitions::OnLost(const std::string& worker, TransitionContext& context) {
  const JobPolicy& policy = context.job.policy;
  const bool took_part = current_->TakesPart(worker);
  auto* planning = current_->In<Planning>();
  auto* preparing = current_->In<Preparing>();
  if (current_->kind == Transition::Kind::kChange) {
    const bool prepares = planning != nullptr || preparing != nullptr;
    if (context.generations.WasPlanned(worker) || (took_part && !prepares)) {
      return Recover(Cause::kLoss, context);
    }
    const bool asked = (planning != nullptr && planning->asked.count(worker) > 0) ||
                       (preparing != nullptr && preparing->asked.count(worker) > 0);
    if (took_part || asked) {
      Drop(context.generations);
    }
    return {};
  }
  if (auto* halting = current_->In<Halting>()) {
    halting->awaited.erase(worker);
    halting->halted.erase(worker);
    halting->coalesce_until = context.now + policy.coalesce;
    return {};
  }
  if (planning == nullptr) {
    return took_part ? Recover(Cause::kLoss, context) : Effects();
  }
  if (current_->kind == Transition::Kind::kForm) {
    // The plan is waited for as long as enough workers are left: it may not name the lost one.
    const auto left = static_cast<int>(CandidatesOf(context.roster).size());
    if (planning->stuck_since ||
        context.formation.Look(left, policy, context.now) != Formation::Verdict::kForm) {
      current_.reset();
    }
    return {};
  }
  // The loss of a worker that holds none of the state only changes which workers may take part.
  if (planning->halted.erase(worker) == 0) {
    const auto left = static_cast<int>(CarriersOf(context.roster, policy.min_workers).size());
    return planning->stuck_since || left >= std::max(1, policy.min_workers)
               ? Effects()
               : AskForPlan(std::move(*planning), context);
  }
  // No worker has begun anything, so the fence stands.
  current_->stage = Halting{.awaited = {},
                            .deadline = context.now + policy.reply_timeout,
                            .coalesce_until = context.now + policy.coalesce,
                            .halted = std::exchange(planning->halted, {})};
  return {};
}

// ---- In force ----

void Transitions::Go(TransitionContext& context) {
  const Transition over = *std::exchange(current_, std::nullopt);
  const Moving& moved = *over.In<Moving>();
  const NextGeneration& next = moved.next;
  DurableGeneration begun{.number = over.generation, .plan = next.plan, .members = {}};
  for (const std::string& name : next.plan.members) {
    begun.members[name] = context.roster.at(name).incarnation;
  }
  const std::optional<Time> since = context.recoveries.End();
  const auto& before = context.generations.held();
  improve_at_.reset();
  if (over.kind == Transition::Kind::kRecover) {
    improve_at_ = context.now + context.job.policy.lease;
  }
  const auto paused_since = over.kind == Transition::Kind::kChange ? moved.since : since;
  context.decisions.LogDecision(
      {.generation = over.generation,
       .follows = before ? before->number : 0,
       .pause = paused_since ? std::optional(context.now - *paused_since) : std::nullopt,
       .since = since,
       .reached_step = next.origin.step + over.steps_repeated,
       .has_waited = !over.stuck.empty()},
      context.out);
  context.outcomes.Begin(begun.number, over.promise, over.former.has_value(), context.out);
  context.generations.Begin(begun);
  context.steps.BeginGeneration();
  context.blame.Clear();
  if (next.origin.source == Source::kLive) {
    // Records of steps that the holders have applied may still come.
    context.steps.RollBackTo(next.origin.step);
  } else {
    context.steps.GoOnAfter(next.origin.step);
  }
  context.agreement.BeginGeneration(next.origin.step);
  context.sources.BeginGeneration(begun, next.origin.step, context.job.policy);
  context.saves.RollBackTo(next.origin.step, context.out);
  context.lineage.BeginGeneration(begun.plan.members, next.origin.source, next.origin.step,
                                  context.roster, context.job.policy);
  context.out.Persist();

  context.sources.NoteMove(next.origin.source, moved.ready);
  if (next.origin.source != Source::kInitial) {
    TellSources(moved.ready, context.out);
  }
  context.out.Log("plan", {{"generation", begun.number},
                           {"predicted_step_seconds", begun.plan.predicted_step_seconds},
                           {"plan", RawJson{begun.plan.plan_json}}});
  context.lineage.Tell(begun.number, context.out);
  if (since) {
    context.out.Log("resumed", {{"seconds", Seconds(context.now - *since)},
                                {"steps_repeated", over.steps_repeated}});
    context.decisions.NoteStep(next.origin.step, context.now, context.out);
  }
  wire::Go go;
  go.set_generation(begun.number);
  for (const std::string& name : next.participants) {
    context.out.Tell(context.roster.at(name).connection, go);
  }
  context.roster.BeginGeneration(begun.number, begun.members);
  BeginDrift(next.planned, over.for_drift, context);
}

}  // namespace heddle::elastic
