#include "elastic/control/transition/transitions.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "elastic/control/deadline.h"
#include "elastic/control/transition/certificate.h"

namespace heddle::elastic {
namespace {

template <typename Message>
void TellAll(const std::vector<std::string>& names,
             const Message& message,
             TransitionContext& context) {
  for (const std::string& name : names) {
    context.out.Tell(context.roster.at(name).connection, message);
  }
}

// The wait-for graph of the workers whose replies are awaited, by rank. A worker that has replied
// keeps no other waiting.
WaitGraph WaitsIn(const Transition& transition, const TransitionContext& context) {
  std::vector<std::string> owing;
  if (const NextGeneration* next = transition.next()) {
    owing = next->participants;
    std::erase_if(owing, [&](const auto& name) { return transition.awaited().count(name) == 0; });
  }
  return WaitsAmong(owing, {transition.fence, transition.generation}, context.roster, Time(),
                    context.job.policy.lease / 2, context.now);
}

// The workers whose reply is overdue, without those that move state and wait for others: they are
// not at fault.
std::vector<Loss> LateIn(const Transition& transition,
                         const WaitGraph& waits,
                         const TransitionContext& context) {
  const bool moves = transition.In<Moving>() != nullptr;
  const std::optional<Time> others_progress = transition.OthersProgress(context.roster);
  std::vector<Loss> late;
  for (const std::string& name : transition.awaited()) {
    const Worker& worker = context.roster.at(name);
    const auto due = transition.DeadlineOf(worker, others_progress, context.job.policy);
    if (due && context.now >= *due && !(moves && worker.waits.any)) {
      const std::string chain = waits.ChainTo(name);
      late.push_back({name, "it did not answer in time" + (chain.empty() ? "" : ": " + chain)});
    }
  }
  return late;
}

}  // namespace

// ---- Prepare ----

Effects Transitions::SendPrepare(const PlanOutcome& plan, TransitionContext& context) {
  auto planning = std::move(*current_->In<Planning>());
  Preparing preparing;
  NextGeneration& next = preparing.next;
  next.origin = std::move(planning.origin);
  next.plan = plan;
  next.participants = plan.members;
  for (const std::string& name : next.origin.holders) {
    if (std::find(next.participants.begin(), next.participants.end(), name) ==
        next.participants.end()) {
      next.participants.push_back(name);
    }
  }
  next.links = context.links.LinksOf(next.participants, context.roster);
  next.planned = std::move(planning.links);
  next.holders = HoldersOf(plan, context.roster, context.job.policy);
  preparing.asked = std::move(planning.asked);
  preparing.awaited = {next.participants.begin(), next.participants.end()};
  preparing.deadline = context.now + context.job.policy.reply_timeout;
  current_->stage = std::move(preparing);
  context.generations.Allot(current_->generation);
  context.out.Persist();
  TellAll(current_->next()->participants, MakePrepare(*current_, context.roster), context);
  return {};
}

Effects Transitions::OnPrepared(const std::string& worker,
                                const wire::Prepared& message,
                                TransitionContext& context) {
  Preparing* preparing = current_ ? current_->In<Preparing>() : nullptr;
  if (preparing == nullptr || message.generation() != current_->generation ||
      preparing->awaited.count(worker) == 0) {
    return {};
  }
  const PlanOutcome& plan = preparing->next.plan;
  const auto rank = static_cast<size_t>(
      std::find(plan.members.begin(), plan.members.end(), worker) - plan.members.begin());
  if (!message.error().empty()) {
    return {.losses = {{worker, "cannot prepare the plan: " + message.error(), false}}};
  }
  if (rank < plan.program_hashes.size() && message.program_hash() != plan.program_hashes[rank]) {
    return {
        .losses = {{worker, "its program differs from the coordinator's: another build?", false}}};
  }
  preparing->awaited.erase(worker);
  if (!preparing->awaited.empty()) {
    return {};
  }
  if (current_->kind == Transition::Kind::kChange) {
    SendStop(context);
  } else {
    SendStart(std::move(preparing->next), context);
  }
  return {};
}

// ---- Stop ----

void Transitions::SendStop(TransitionContext& context) {
  const DurableGeneration& held = *context.generations.held();
  Stopping stopping{.next = std::move(current_->In<Preparing>()->next),
                    .awaited = {},
                    .deadline = context.now + context.job.policy.stop_timeout};
  wire::Stop stop;
  stop.set_generation(held.number);
  for (const auto& [name, incarnation] : held.members) {
    stopping.awaited.insert(name);
    stopping.members.push_back(name);
    context.out.Tell(context.roster.at(name).connection, stop);
  }
  current_->stage = std::move(stopping);
}

Effects Transitions::OnStopped(const std::string& worker,
                               int64_t generation,
                               int64_t applied_step,
                               TransitionContext& context) {
  Stopping* stopping = current_ ? current_->In<Stopping>() : nullptr;
  if (stopping == nullptr || generation != context.generations.held()->number ||
      stopping->awaited.erase(worker) == 0) {
    return {};
  }
  if (stopping->applied_step && *stopping->applied_step != applied_step) {
    context.decisions.Note({.worker = worker,
                            .what = fmt::format("stopped after step {}, others after {}",
                                                applied_step, *stopping->applied_step)});
    return Recover(Cause::kFailure, context);
  }
  stopping->applied_step = applied_step;
  if (!stopping->awaited.empty()) {
    return {};
  }
  if (context.steps.finished().size() == context.generations.held()->members.size()) {
    current_.reset();
    return {};
  }
  stopping->next.origin.step = applied_step;
  SendStart(std::move(stopping->next), context);
  return {};
}

// ---- Start ----

// A save that was in progress when the source was chosen may have been committed since, and the
// chosen checkpoint pruned.
void Transitions::TakeNewestCheckpoint(SourceOption& origin, TransitionContext& context) {
  const std::vector<int64_t>& committed = context.saves.committed();
  if (origin.source != Source::kCheckpoint || committed.empty() ||
      committed.back() <= origin.step) {
    return;
  }
  context.decisions.Note(
      {.worker = "",
       .what = fmt::format("the checkpoint of step {} was completed meanwhile", committed.back())});
  current_->steps_repeated -= committed.back() - origin.step;
  origin.step = committed.back();
}

void Transitions::SendStart(NextGeneration next, TransitionContext& context) {
  TakeNewestCheckpoint(next.origin, context);
  const std::vector<std::string> participants = next.participants;
  current_->stage = Moving{.next = std::move(next),
                           .awaited = {participants.begin(), participants.end()},
                           .deadline = context.now + context.job.policy.move_timeout,
                           .since = context.now};
  context.blame.Clear();
  TellAll(participants,
          MakeStart(*current_, context.roster, context.generations, context.steps, context.saves,
                    context.job.policy),
          context);
}

Effects Transitions::OnReady(const std::string& worker,
                             const wire::Ready& message,
                             TransitionContext& context) {
  Moving* moving = current_ ? current_->In<Moving>() : nullptr;
  if (moving == nullptr || message.generation() != current_->generation ||
      moving->awaited.count(worker) == 0) {
    return {};
  }
  const SourceOption& origin = moving->next.origin;
  if (RefusesHolders(message, origin)) {
    RefuseHolders(worker, message, origin, context);
    if (auto fault = FaultOf(worker, origin, context)) {
      return {.losses = {*std::move(fault)}};
    }
    return Recover(Cause::kUnreadable, context);
  }
  if (message.source_unreadable() &&
      (origin.source == Source::kCheckpoint || origin.source == Source::kReplicas)) {
    if (auto fault = FaultOf(worker, origin, context)) {
      return {.losses = {*std::move(fault)}};
    }
    RefuseSource(origin, message.error(), context);
    context.decisions.Note(
        {.worker = worker,
         .what = fmt::format("could not read the {} of step {}: {}", NameOf(origin.source),
                             origin.step, message.error())});
    return Recover(Cause::kUnreadable, context);
  }
  if (!message.error().empty()) {
    return {.losses = context.blame.Accuse(worker, message.peer() == worker ? "" : message.peer(),
                                           message.error(), context.roster, context.generations,
                                           context.now)};
  }
  moving->awaited.erase(worker);
  moving->ready[worker] = message;
  if (!moving->awaited.empty()) {
    return {};
  }
  if (const auto found = FindDisagreement(*moving, context.generations)) {
    auto losses = RefuseDisagreeing(*found, origin, current_->generation, context);
    return losses.empty() ? Recover(Cause::kDisagreement, context)
                          : Effects{.losses = std::move(losses)};
  }
  Go(context);
  return {};
}

// ---- Too late, or again ----

Effects Transitions::CheckDeadline(TransitionContext& context) {
  if (!current_) {
    return {};
  }
  const JobPolicy& policy = context.job.policy;
  const std::optional<Time> deadline = current_->Deadline(context.roster, policy);
  const bool is_over = deadline && context.now >= *deadline;
  Planning* planning = current_->In<Planning>();
  if (planning != nullptr && is_over) {
    const double seconds = Seconds(policy.plan_timeout);
    return RefusePlan(DeadlineExceededError("no plan was found in {:.0f} s", seconds), context,
                      /*asks_again=*/false);
  }
  if (current_->IsStuck()) {
    const bool others =
        AbleFor(current_->kind, context.roster, policy.min_workers) != planning->asked &&
        context.links.Settled(context.roster, policy.links, context.now, context.out);
    if (!others && policy.paused_timeout > Duration(0) &&
        context.now - *planning->stuck_since >= policy.paused_timeout) {
      return {.end = EndJob{false, current_->kind == Transition::Kind::kForm,
                            context.recoveries.WithFirstLoss("no plan: " + current_->stuck)}};
    }
    if (others) {
      planning->stuck_since.reset();
    }
    const bool retries = planning->retry_at && context.now >= *planning->retry_at;
    return others || retries ? AskForPlan(std::move(*planning), context) : Effects();
  }
  if (!is_over) {
    return {};
  }
  if (current_->In<Stopping>() != nullptr) {
    context.decisions.Note({.worker = "", .what = "no member stopped, and none did anything"});
    return Recover(Cause::kFailure, context);
  }
  const WaitGraph waits = WaitsIn(*current_, context);
  std::vector<Loss> late = LateIn(*current_, waits, context);
  if (!late.empty()) {
    return {.losses = std::move(late)};
  }
  // All workers that move state wait for each other.
  Blame::Verdict verdict = context.blame.JudgeWaits(waits, Duration(0), Duration(0), context.now);
  if (!verdict.losses.empty()) {
    return {.losses = std::move(verdict.losses)};
  }
  verdict.reports.emplace("", "those who move state wait, and none of them did anything");
  for (const auto& [name, words] : verdict.reports) {
    context.decisions.Note({.worker = name, .what = words});
  }
  return Recover(Cause::kFailure, context);
}

void Transitions::Excuse(Duration absence) {
  if (current_) {
    std::visit(
        [absence](auto& stage) {
          if (stage.deadline) {
            *stage.deadline += absence;
          }
        },
        current_->stage);
  }
}

std::optional<Time> Transitions::NextDeadline(const JobPolicy& policy, const Roster& roster) const {
  if (!current_) {
    return std::nullopt;
  }
  std::optional<Time> next = current_->Deadline(roster, policy);
  if (const auto* halting = current_->In<Halting>(); halting && halting->awaited.empty()) {
    Earlier(next, halting->coalesce_until);
  }
  if (current_->IsStuck()) {
    Earlier(next, current_->In<Planning>()->retry_at);
    if (policy.paused_timeout > Duration(0)) {
      Earlier(next, *current_->In<Planning>()->stuck_since + policy.paused_timeout);
    }
  }
  return next;
}

void Transitions::Resend(const Worker& worker, TransitionContext& context) const {
  if (!current_ || current_->awaited().count(worker.name) == 0) {
    return;
  }
  if (current_->In<Halting>() != nullptr) {
    return context.out.Tell(worker.connection, MakeHalt(*current_, context.steps.known()));
  }
  if (current_->In<Stopping>() != nullptr) {
    wire::Stop stop;
    stop.set_generation(context.generations.held()->number);
    return context.out.Tell(worker.connection, stop);
  }
  context.out.Tell(worker.connection, MakePrepare(*current_, context.roster));
  if (current_->In<Moving>() != nullptr) {
    context.out.Tell(worker.connection,
                     MakeStart(*current_, context.roster, context.generations, context.steps,
                               context.saves, context.job.policy));
  }
}

void Transitions::Drop(const Generations& generations) {
  current_.reset();
  std::erase_if(considered_, [&](const std::string& name) { return !generations.IsMember(name); });
}

void Transitions::Restore(const Roster& roster) {
  for (const auto& [name, worker] : roster.workers()) {
    considered_.insert(name);
  }
}

Status Transitions::Check(const Roster& roster,
                          const Generations& generations,
                          const StateSources& sources) const {
  if (!current_) {
    return Status::Ok();
  }
  if (generations.held() && current_->generation <= generations.held()->number) {
    return InternalError("generation {} would follow {}", current_->generation,
                         generations.held()->number);
  }
  for (const std::string& name : current_->awaited()) {
    if (roster.Find(name) == nullptr) {
      return InternalError("an answer of {} is awaited, which is gone", name);
    }
  }
  if (const auto* planning = current_->In<Planning>()) {
    return sources.Check(planning->origin);
  }
  return current_->next() == nullptr ? Status::Ok() : sources.Check(current_->next()->origin);
}

}  // namespace heddle::elastic
