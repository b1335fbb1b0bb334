#include "elastic/control/transition/transitions.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "elastic/control/deadline.h"

namespace heddle::elastic {
namespace {

// What could not be read is not offered again. Nobody has gone on from it.
void RefuseSource(const SourceOption& origin, const std::string& reason, Scene& scene) {
  if (origin.source == Source::kReplicas) {
    scene.out.Log(
        "replica_refused",
        {{"step", origin.step}, {"generation", origin.snapshot_generation}, {"reason", reason}});
    scene.sources.RefuseSnapshot(origin.snapshot_generation, origin.step);
  } else {
    scene.out.Log("checkpoint_refused", {{"step", origin.step}, {"reason", reason}});
    scene.saves.Refuse(origin.step, reason);
  }
}

template <typename Message>
void TellAll(const std::vector<std::string>& names, const Message& message, Scene& scene) {
  for (const std::string& name : names) {
    scene.out.Tell(scene.roster.at(name).connection, message);
  }
}

}  // namespace

// ---- Prepare ----

Consequence Transitions::SendPrepare(const PlanOutcome& plan, Scene& scene) {
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
  next.links = scene.links.LinksOf(next.participants, scene.roster);
  next.holders = HoldersOf(plan, scene.roster, scene.job.policy);
  preparing.asked = std::move(planning.asked);
  preparing.awaited = {next.participants.begin(), next.participants.end()};
  preparing.deadline = scene.now + scene.job.policy.reply_timeout;
  current_->stage = std::move(preparing);
  scene.generations.Allot(current_->generation);
  scene.out.Persist();
  TellAll(current_->next()->participants, MakePrepare(*current_, scene.roster), scene);
  return {};
}

Consequence Transitions::OnPrepared(const std::string& worker,
                                    const wire::Prepared& message,
                                    Scene& scene) {
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
    SendStop(scene);
  } else {
    SendStart(std::move(preparing->next), scene);
  }
  return {};
}

// ---- Stop ----

void Transitions::SendStop(Scene& scene) {
  const DurableGeneration& held = *scene.generations.held();
  Stopping stopping{.next = std::move(current_->In<Preparing>()->next),
                    .awaited = {},
                    .deadline = scene.now + scene.job.policy.stop_timeout};
  wire::Stop stop;
  stop.set_generation(held.number);
  for (const auto& [name, incarnation] : held.members) {
    stopping.awaited.insert(name);
    stopping.members.push_back(name);
    scene.out.Tell(scene.roster.at(name).connection, stop);
  }
  current_->stage = std::move(stopping);
}

Consequence Transitions::OnStopped(const std::string& worker,
                                   int64_t generation,
                                   int64_t applied_step,
                                   Scene& scene) {
  Stopping* stopping = current_ ? current_->In<Stopping>() : nullptr;
  if (stopping == nullptr || generation != scene.generations.held()->number ||
      stopping->awaited.erase(worker) == 0) {
    return {};
  }
  if (stopping->applied_step && *stopping->applied_step != applied_step) {
    return Recover(scene);
  }
  stopping->applied_step = applied_step;
  if (!stopping->awaited.empty()) {
    return {};
  }
  if (scene.steps.finished().size() == scene.generations.held()->members.size()) {
    current_.reset();
    return {};
  }
  stopping->next.origin.step = applied_step;
  SendStart(std::move(stopping->next), scene);
  return {};
}

// ---- Start ----

void Transitions::SendStart(NextGeneration next, Scene& scene) {
  const std::vector<std::string> participants = next.participants;
  current_->stage = Moving{.next = std::move(next),
                           .awaited = {participants.begin(), participants.end()},
                           .deadline = scene.now + scene.job.policy.move_timeout};
  scene.blame.Clear();
  TellAll(participants,
          MakeStart(*current_, scene.roster, scene.generations, scene.steps, scene.saves,
                    scene.job.policy),
          scene);
}

Consequence Transitions::OnReady(const std::string& worker,
                                 const wire::Ready& message,
                                 Scene& scene) {
  Moving* moving = current_ ? current_->In<Moving>() : nullptr;
  if (moving == nullptr || message.generation() != current_->generation ||
      moving->awaited.count(worker) == 0) {
    return {};
  }
  const SourceOption& origin = moving->next.origin;
  if (message.source_unreadable() &&
      (origin.source == Source::kCheckpoint || origin.source == Source::kReplicas)) {
    RefuseSource(origin, message.error(), scene);
    return Recover(scene);
  }
  if (!message.error().empty()) {
    return {.losses =
                scene.blame.Accuse(worker, message.peer() == worker ? "" : message.peer(),
                                   message.error(), scene.roster, scene.generations, scene.now)};
  }
  moving->awaited.erase(worker);
  moving->ready[worker] = message;
  if (moving->awaited.empty()) {
    Go(scene);
  }
  return {};
}

// ---- Too late, or again ----

Consequence Transitions::CheckDeadline(Scene& scene) {
  if (!current_) {
    return {};
  }
  const JobPolicy& policy = scene.job.policy;
  const std::optional<Time> deadline = current_->Deadline(scene.roster, policy);
  const bool is_over = deadline && scene.now >= *deadline;
  Planning* planning = current_->In<Planning>();
  if (planning != nullptr && is_over) {
    const double seconds = Seconds(kPlanTimeout);
    return RefusePlan(DeadlineExceededError("no plan was found in {:.0f} s", seconds), scene,
                      /*asks_again=*/false);
  }
  if (current_->IsStuck()) {
    const bool others = CandidatesOf(scene.roster) != planning->asked &&
                        scene.links.Settled(scene.roster, policy.links, scene.now, scene.out);
    if (!others && policy.paused_timeout > Duration(0) &&
        scene.now - *planning->stuck_since >= policy.paused_timeout) {
      return {.end = EndJob{false, current_->kind == Transition::Kind::kForm,
                            "no plan: " + current_->stuck}};
    }
    if (others) {
      planning->stuck_since.reset();
    }
    const bool retries = planning->retry_at && scene.now >= *planning->retry_at;
    return others || retries ? AskForPlan(std::move(*planning), scene) : Consequence();
  }
  if (!is_over) {
    return {};
  }
  if (current_->In<Stopping>() != nullptr) {
    return Recover(scene);
  }
  // Who waits for others is late only when all of them do.
  Consequence late;
  Consequence waiting;
  for (const std::string& name : current_->awaited()) {
    const auto own = current_->DeadlineOf(name, scene.roster, policy);
    if (own && scene.now >= *own) {
      Consequence& kind = scene.roster.at(name).waits ? waiting : late;
      kind.losses.push_back({name, "it did not answer in time"});
    }
  }
  return late.losses.empty() ? waiting : late;
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

void Transitions::Repeat(const Worker& worker, Scene& scene) const {
  if (!current_ || current_->awaited().count(worker.name) == 0) {
    return;
  }
  if (current_->In<Halting>() != nullptr) {
    return scene.out.Tell(worker.connection, MakeHalt(*current_, scene.steps.known()));
  }
  if (current_->In<Stopping>() != nullptr) {
    wire::Stop stop;
    stop.set_generation(scene.generations.held()->number);
    return scene.out.Tell(worker.connection, stop);
  }
  scene.out.Tell(worker.connection, MakePrepare(*current_, scene.roster));
  if (current_->In<Moving>() != nullptr) {
    scene.out.Tell(worker.connection, MakeStart(*current_, scene.roster, scene.generations,
                                                scene.steps, scene.saves, scene.job.policy));
  }
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
