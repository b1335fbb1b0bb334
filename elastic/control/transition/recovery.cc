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
  for (const auto& [name, message] : ready) {
    for (const auto& [kind, amount] : message.moved_bytes()) {
      sources[kind] += amount;
      bytes += amount;
    }
  }
  std::string text = "{";
  for (const auto& [kind, amount] : sources) {
    text += (text.size() > 1 ? ", " : "") + QuoteJson(kind) + ": " + std::to_string(amount);
  }
  out.Log("state_moved", {{"bytes", bytes}, {"sources", RawJson{text + "}"}}});
}

// Starts to watch for drift from what the new plan counts on.
void BeginDrift(const std::vector<std::string>& members,
                const wire::Links& links,
                bool for_drift,
                Scene& scene) {
  scene.drift.BeginGeneration();
  scene.link_drift.BeginGeneration(members, links);
  if (for_drift) {
    AnswerDrift(scene);
  }
}

}  // namespace

Consequence Transitions::Recover(Cause cause, Scene& scene) {
  const JobPolicy& policy = scene.job.policy;
  if (auto end = scene.recoveries.Begin(policy.max_recoveries_without_step, scene.now)) {
    return {.end = std::move(end)};
  }
  scene.decisions.Begin(cause);
  Halting halting;
  halting.coalesce_until = scene.now + policy.coalesce;
  halting.deadline = scene.now + policy.reply_timeout;
  for (const auto& [name, worker] : scene.roster.workers()) {
    const bool took_part = current_ && current_->TakesPart(name);
    if (worker.welcomed && (scene.generations.IsMember(name) || took_part)) {
      halting.awaited.insert(name);
    }
  }
  const std::vector<std::string> notified(halting.awaited.begin(), halting.awaited.end());
  current_ = Transition{.kind = Transition::Kind::kRecover,
                        .fence = scene.generations.counter() + 1,
                        .generation = scene.generations.counter() + 2,
                        .stage = std::move(halting)};
  scene.generations.Allot(current_->generation);
  scene.blame.Clear();
  scene.steps.BeginGeneration();
  scene.out.Persist();
  const wire::Halt halt = MakeHalt(*current_, scene.steps.known());
  for (const std::string& name : notified) {
    scene.out.Tell(scene.roster.at(name).connection, halt);
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

Consequence Transitions::LeaveHalt(Scene& scene) {
  Halting* halting = current_ ? current_->In<Halting>() : nullptr;
  if (halting == nullptr || !halting->awaited.empty() || scene.now < halting->coalesce_until) {
    return {};
  }
  std::vector<SourceOption> options = scene.sources.Options(
      halting->halted, scene.generations, scene.steps, scene.saves, scene.job.policy.recovery);
  if (options.empty()) {
    return {.end = EndJob{false, true, "no checkpoint is sound: " + scene.saves.unsound()}};
  }
  std::string candidates;
  for (const SourceOption& option : options) {
    candidates += fmt::format(R"({}{{"source": "{}", "step": {}, "predicted_seconds": {:.9g}}})",
                              candidates.empty() ? "" : ", ", NameOf(option.source), option.step,
                              option.seconds);
  }
  scene.decisions.WeighSources(options, scene.job.policy);
  SourceOption& chosen = options.front();
  scene.out.Log("recovery_source", {{"chosen", std::string(NameOf(chosen.source))},
                                    {"step", chosen.step},
                                    {"candidates", RawJson{"[" + candidates + "]"}}});
  current_->steps_repeated = std::max(current_->steps_repeated, scene.steps.known() - chosen.step);
  return AskForPlan({.origin = std::move(chosen), .halted = std::move(halting->halted)}, scene);
}

Consequence Transitions::OnLost(const std::string& worker, Scene& scene) {
  const JobPolicy& policy = scene.job.policy;
  const bool took_part = current_->TakesPart(worker);
  auto* planning = current_->In<Planning>();
  auto* preparing = current_->In<Preparing>();
  if (current_->kind == Transition::Kind::kChange) {
    const bool prepares = planning != nullptr || preparing != nullptr;
    if (scene.generations.WasPlanned(worker) || (took_part && !prepares)) {
      return Recover(Cause::kLoss, scene);
    }
    const bool asked = (planning != nullptr && planning->asked.count(worker) > 0) ||
                       (preparing != nullptr && preparing->asked.count(worker) > 0);
    if (took_part || asked) {
      Drop(scene.generations);
    }
    return {};
  }
  if (auto* halting = current_->In<Halting>()) {
    halting->awaited.erase(worker);
    halting->halted.erase(worker);
    halting->coalesce_until = scene.now + policy.coalesce;
    return {};
  }
  if (planning == nullptr) {
    return took_part ? Recover(Cause::kLoss, scene) : Consequence();
  }
  if (current_->kind == Transition::Kind::kForm) {
    // The plan is waited for as long as enough workers are left: it may not name the lost one.
    const auto left = static_cast<int>(CandidatesOf(scene.roster).size());
    if (planning->stuck_since ||
        scene.formation.Look(left, policy, scene.now) != Formation::Verdict::kForm) {
      current_.reset();
    }
    return {};
  }
  // The loss of a worker that holds none of the state only changes which workers may take part.
  if (planning->halted.erase(worker) == 0) {
    const auto left = static_cast<int>(CarriersOf(scene.roster, policy.min_workers).size());
    return planning->stuck_since || left >= std::max(1, policy.min_workers)
               ? Consequence()
               : AskForPlan(std::move(*planning), scene);
  }
  // No worker has begun anything, so the fence stands.
  current_->stage = Halting{.awaited = {},
                            .deadline = scene.now + policy.reply_timeout,
                            .coalesce_until = scene.now + policy.coalesce,
                            .halted = std::exchange(planning->halted, {})};
  return {};
}

// ---- In force ----

void Transitions::Go(Scene& scene) {
  const Transition over = *std::exchange(current_, std::nullopt);
  const Moving& moved = *over.In<Moving>();
  const NextGeneration& next = moved.next;
  DurableGeneration begun{.number = over.generation, .plan = next.plan, .members = {}};
  for (const std::string& name : next.plan.members) {
    begun.members[name] = scene.roster.at(name).incarnation;
  }
  const std::optional<Time> since = scene.recoveries.End();
  const auto& before = scene.generations.held();
  const bool trained = over.kind == Transition::Kind::kChange;
  improve_at_.reset();
  if (over.kind == Transition::Kind::kRecover) {
    improve_at_ = scene.now + scene.job.policy.lease;
  }
  const auto paused_since = trained ? moved.since : since;
  scene.decisions.LogDecision(
      {.generation = over.generation,
       .follows = before ? before->number : 0,
       .pause = paused_since ? std::optional(scene.now - *paused_since) : std::nullopt,
       .since = since,
       .reached_step = next.origin.step + over.steps_repeated,
       .has_waited = !over.stuck.empty()},
      scene.out);
  scene.outcomes.Begin(begun.number, over.promise, over.former.has_value(), scene.out);
  scene.generations.Begin(begun);
  scene.steps.BeginGeneration();
  scene.blame.Clear();
  if (next.origin.source == Source::kLive) {
    // Records of steps that the holders have applied may still come.
    scene.steps.RollBackTo(next.origin.step);
  } else {
    scene.steps.GoOnAfter(next.origin.step);
  }
  scene.agreement.BeginGeneration(next.origin.step);
  scene.sources.BeginGeneration(begun, next.origin.step, scene.job.policy);
  scene.saves.RollBackTo(next.origin.step, scene.out);
  scene.out.Persist();

  scene.sources.NoteMove(next.origin.source, moved.ready);
  if (next.origin.source != Source::kInitial) {
    TellSources(moved.ready, scene.out);
  }
  scene.out.Log("plan", {{"generation", begun.number},
                         {"predicted_step_seconds", begun.plan.predicted_step_seconds},
                         {"plan", RawJson{begun.plan.plan_json}}});
  if (since) {
    scene.out.Log("resumed", {{"seconds", Seconds(scene.now - *since)},
                              {"steps_repeated", over.steps_repeated}});
    scene.decisions.NoteStep(next.origin.step, scene.now, scene.out);
  }
  wire::Go go;
  go.set_generation(begun.number);
  for (const std::string& name : next.participants) {
    scene.out.Tell(scene.roster.at(name).connection, go);
  }
  scene.roster.BeginGeneration(begun.number, begun.members);
  BeginDrift(begun.plan.members, next.links, over.for_drift, scene);
}

}  // namespace heddle::elastic
