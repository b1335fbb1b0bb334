// Moving state to the members of a new plan, and putting it in force.
#include <algorithm>
#include <utility>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {

// Every holder with all that it has of the snapshot: who gives what is the workers' affair.
wire::Start::Replicas Coordinator::State::MakeReplicas() const {
  const Transition& t = *transition;
  wire::Start::Replicas message;
  message.set_generation(t.snapshot_generation);
  const SnapshotSource& source = snapshots.at(t.snapshot_generation);
  message.set_plan_json(source.plan_json);
  for (const std::string& name : t.holders) {
    for (const wire::Halted::Replicas& held_here : t.halted.at(name).replicas()) {
      if (held_here.generation() == t.snapshot_generation && held_here.step() == t.applied_step) {
        wire::Start::Replicas::Holder& holder = *message.add_holders();
        holder.set_worker(name);
        std::copy_if(held_here.owners().begin(), held_here.owners().end(),
                     google::protobuf::RepeatedFieldBackInserter(holder.mutable_owners()),
                     [&](int32_t rank) {
                       return std::binary_search(source.owners.begin(), source.owners.end(), rank);
                     });
      }
    }
  }
  return message;
}

wire::Start Coordinator::State::MakeStart() const {
  const Transition& t = *transition;
  wire::Start message;
  message.set_generation(t.generation);
  message.set_applied_step(t.applied_step);
  if (t.settle) {
    *message.mutable_settle() = *t.settle;
  }
  switch (t.source) {
    case Source::kInitial:
      message.set_initial(true);
      break;
    case Source::kCheckpoint:
      message.set_checkpoint_step(t.applied_step);
      break;
    case Source::kReplicas:
      *message.mutable_replicas() = MakeReplicas();
      break;
    case Source::kLive:
      message.mutable_held()->set_generation(held->number);
      message.mutable_held()->set_plan_json(held->plan.plan_json);
      for (const std::string& name : t.holders) {
        message.mutable_held()->add_workers(name);
      }
      break;
  }
  const bool some_leave = t.participants.size() > t.plan.members.size();
  message.set_move_generation(some_leave ? t.fence : t.generation);
  for (const std::string& name : t.participants) {
    wire::Member& member = *message.add_move_members();
    member.set_name(name);
    member.set_address(workers.at(name).data_address);
  }
  const bool committed = std::binary_search(checkpoints.begin(), checkpoints.end(), t.applied_step);
  message.set_save(CheckpointDue(policy(), t.applied_step) && !committed);
  message.set_validate(ValidationDue(policy(), t.applied_step) &&
                       validated.count(t.applied_step) == 0);
  return message;
}

void Coordinator::State::SendStart(Time now) {
  Transition& t = *transition;
  t.stage = Transition::Stage::kMove;
  t.deadline = now + policy().move_timeout;
  t.awaited = {t.participants.begin(), t.participants.end()};
  t.ready.clear();
  accusations.clear();
  const wire::Start message = MakeStart();
  for (const std::string& name : t.participants) {
    SendTo(workers.at(name), message);
  }
}

void Coordinator::State::OnReady(Worker& worker, const wire::Ready& message, Time now) {
  if (!transition || transition->stage != Transition::Stage::kMove ||
      message.generation() != transition->generation ||
      transition->awaited.count(worker.name) == 0) {
    return;
  }
  if (message.source_unreadable() &&
      (transition->source == Source::kCheckpoint || transition->source == Source::kReplicas)) {
    return RefuseSource(message.error(), now);
  }
  if (!message.error().empty()) {
    return Accuse(worker, message.peer() == worker.name ? "" : message.peer(), message.error(),
                  now);
  }
  transition->awaited.erase(worker.name);
  transition->ready[worker.name] = message;
  if (transition->awaited.empty()) {
    Go(now);
  }
}

void Coordinator::State::Go(Time now) {
  const Transition t = *std::exchange(transition, std::nullopt);
  held.emplace();
  held->number = t.generation;
  held->plan = t.plan;
  for (const std::string& name : t.plan.members) {
    held->members[name] = workers.at(name).incarnation;
  }
  phase = Phase::kRunning;
  finished.clear();
  finished_since.reset();
  accusations.clear();
  if (t.source == Source::kLive) {
    RollBackTo(
        t.applied_step);  // Records of later steps that its holders applied are still to come.
  } else {
    GoOnAfter(t.applied_step);
  }
  VoidSnapshotsAfter(t.applied_step);
  RememberSnapshots();
  SaveState(now);

  std::map<std::string, int64_t> sources;
  int64_t bytes = 0;
  for (const auto& [name, ready] : t.ready) {
    for (const auto& [kind, amount] : ready.moved_bytes()) {
      sources[kind] += amount;
      bytes += amount;
    }
  }
  NoteMove(t, bytes);
  if (t.source != Source::kInitial) {
    std::string text = "{";
    for (const auto& [kind, amount] : sources) {
      text += (text.size() > 1 ? ", " : "") + QuoteJson(kind) + ": " + std::to_string(amount);
    }
    Log("state_moved", {{"bytes", bytes}, {"sources", RawJson{text + "}"}}});
  }
  Log("plan", {{"generation", held->number},
               {"predicted_step_seconds", held->plan.predicted_step_seconds},
               {"plan", RawJson{held->plan.plan_json}}});
  if (recovering_since) {
    Log("resumed",
        {{"seconds", Seconds(now - *recovering_since)}, {"steps_repeated", t.steps_repeated}});
    recovering_since.reset();
  }
  wire::Go go;
  go.set_generation(held->number);
  for (const std::string& name : t.participants) {
    SendTo(workers.at(name), go);
  }
  for (auto& [name, worker] : workers) {
    worker.planned_slowdown = worker.slowdown;
    worker.ratios.clear();
    worker.window = 0;
    worker.standing = IsMember(name) ? wire::STANDING_TRAINING : wire::STANDING_IDLE;
    worker.standing_generation = held->number;
  }
  if (t.for_drift) {
    DriftChanged(now);
  }
}

}  // namespace heddle::elastic
