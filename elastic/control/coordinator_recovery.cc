// After a loss: fence, and hear what the survivors hold. And after the coordinator's own: adopt.
#include <algorithm>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {

void Coordinator::State::BeginRecovery(Time now) {
  if (++recoveries_without_step > policy().max_recoveries_without_step) {
    return End(
        false, false,
        fmt::format("{} recoveries in a row without a completed step", recoveries_without_step - 1),
        now);
  }
  Transition next;
  next.kind = Transition::Kind::kRecover;
  next.stage = Transition::Stage::kHalt;
  next.fence = generation_counter + 1;
  next.generation = generation_counter + 2;
  next.coalesce_until = now + policy().coalesce;
  next.deadline = now + policy().reply_timeout;
  for (const auto& [name, worker] : workers) {
    const bool took_part =
        transition && std::find(transition->participants.begin(), transition->participants.end(),
                                name) != transition->participants.end();
    if (worker.welcomed && (IsMember(name) || took_part)) {
      next.awaited.insert(name);
    }
  }
  generation_counter = next.generation;
  transition = std::move(next);
  accusations.clear();
  finished.clear();
  finished_since.reset();
  if (!recovering_since) {
    recovering_since = now;
  }
  SaveState(now);
  wire::Halt halt;
  halt.set_generation(transition->fence);
  halt.set_known_step(known_step);
  for (const std::string& name : transition->awaited) {
    SendTo(workers.at(name), halt);
  }
}

void Coordinator::State::LostDuringTransition(const std::string& name, Time now) {
  Transition& t = *transition;
  const bool was_member = held && std::find(held->plan.members.begin(), held->plan.members.end(),
                                            name) != held->plan.members.end();
  const bool took_part =
      std::find(t.participants.begin(), t.participants.end(), name) != t.participants.end();
  const bool prepares =
      t.stage == Transition::Stage::kPlan || t.stage == Transition::Stage::kPrepare;
  t.awaited.erase(name);
  t.halted.erase(name);
  t.holders.erase(std::remove(t.holders.begin(), t.holders.end(), name), t.holders.end());
  if (t.kind == Transition::Kind::kChange) {
    if (was_member || (took_part && !prepares)) {
      return BeginRecovery(now);
    }
    if (prepares && (took_part || t.asked.count(name) > 0)) {
      // Training goes on; who else wanted to join is looked at again.
      transition.reset();
      for (auto& [other, worker] : workers) {
        worker.considered = worker.considered && IsMember(other);
      }
    }
    return;
  }
  switch (t.stage) {
    case Transition::Stage::kHalt:
      t.coalesce_until = now + policy().coalesce;
      return;
    case Transition::Stage::kPlan:
      if (t.kind == Transition::Kind::kForm) {
        transition.reset();
        return;
      }
      t.stage = Transition::Stage::kHalt;  // Nobody has begun anything: the fence stands.
      t.stuck_since.reset();
      t.deadline = now + policy().reply_timeout;
      t.coalesce_until = now + policy().coalesce;
      return;
    case Transition::Stage::kPrepare:
    case Transition::Stage::kStop:
    case Transition::Stage::kMove:
      if (took_part) {
        BeginRecovery(now);
      }
      return;
  }
}

void Coordinator::State::OnHalted(Worker& worker, const wire::Halted& message, Time now) {
  if (!transition || transition->stage != Transition::Stage::kHalt ||
      message.generation() != transition->fence || transition->awaited.count(worker.name) == 0) {
    return;
  }
  OnRecords(message.records(), now);
  if (!transition) {
    return;  // A record ended the job.
  }
  transition->awaited.erase(worker.name);
  transition->halted[worker.name] = message;
}

void Coordinator::State::LeaveHaltWhenComplete(Time now) {
  if (transition && transition->stage == Transition::Stage::kHalt && transition->awaited.empty() &&
      now >= transition->coalesce_until) {
    ChooseSource(now);
  }
}

// ---- The coordinator's own restart ----

void Coordinator::State::StartForming(Time now) {
  phase = Phase::kForming;
  forming_since = now;
  forming_late = false;
  held.reset();
  snapshots.clear();
}

void Coordinator::State::FinishAdopting(Time now) {
  std::vector<std::string> absent;
  for (const auto& [name, worker] : workers) {
    if (!worker.seen) {
      absent.push_back(name);
    }
  }
  if (!absent.empty() && now < *adopt_until) {
    return;
  }
  adopt_until.reset();
  for (const std::string& name : absent) {
    Lose(name, "it did not come back to the restarted coordinator", now);
  }
  if (known_step > 0 || held) {
    recovering_since = started;
  }
  if (!held || held->members.empty()) {
    return StartForming(now);
  }
  phase = Phase::kRunning;
  bool intact = held->members.size() == held->plan.members.size() && accusations.empty();
  for (const auto& [name, incarnation] : held->members) {
    const Worker& worker = workers.at(name);
    const bool goes =
        worker.standing_generation == held->number &&
        (worker.standing == wire::STANDING_TRAINING || worker.standing == wire::STANDING_FINISHED ||
         worker.standing == wire::STANDING_READY);
    intact = intact && goes;
  }
  if (!intact) {
    return BeginRecovery(now);
  }
  recovering_since.reset();
  Log("coordinator_restarted", {{"generation", held->number}});
  for (const auto& [name, incarnation] : held->members) {
    if (workers.at(name).standing == wire::STANDING_READY) {
      wire::Go go;
      go.set_generation(held->number);
      SendTo(workers.at(name), go);
    }
  }
}

}  // namespace heddle::elastic
