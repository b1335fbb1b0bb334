// Steps, validation losses, checkpoints, and the job's end.
#include <algorithm>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {
namespace {

// Records beyond a gap that are kept until it is filled.
constexpr size_t kMaxEarly = 4096;

}  // namespace

void Coordinator::State::OnRecords(
    const google::protobuf::RepeatedPtrField<wire::StepRecord>& records, Time now) {
  for (const wire::StepRecord& record : records) {
    if (record.step() > known_step && early.size() < kMaxEarly) {
      early.emplace(record.step(), record);
    }
  }
  while (!early.empty() && early.begin()->first <= known_step + 1 && phase != Phase::kDone) {
    const wire::StepRecord record = early.begin()->second;
    early.erase(early.begin());
    if (record.step() == known_step + 1) {
      TakeRecord(record, now);
    }
  }
}

void Coordinator::State::TakeRecord(const wire::StepRecord& record, Time now) {
  known_step = record.step();
  last_record = record;
  recoveries_without_step = 0;
  smoothed_step_seconds = smoothed_step_seconds == 0
                              ? record.seconds()
                              : 0.8 * smoothed_step_seconds + 0.2 * record.seconds();
  Log("step", {{"step", record.step()},
               {"generation", record.generation()},
               {"loss", record.loss()},
               {"tokens", record.tokens()},
               {"seconds", record.seconds()},
               {"first_sample", record.first_sample()},
               {"samples", record.samples()},
               {"gradient_norm", record.gradient_norm()}});
  if (record.not_finite() && policy().not_finite == NotFinitePolicy::kStop) {
    End(false, false,
        fmt::format("the loss or the gradient norm of step {} is not finite", record.step()), now);
  }
}

void Coordinator::State::RollBackTo(int64_t step) {
  known_step = std::min(known_step, step);
  early.erase(early.upper_bound(step), early.end());
  validated.erase(validated.upper_bound(step), validated.end());
}

void Coordinator::State::GoOnAfter(int64_t step) {
  RollBackTo(step);
  known_step = step;
}

void Coordinator::State::OnValidation(const wire::Validation& message) {
  if (phase == Phase::kDone || !validated.emplace(message.step(), message.loss()).second) {
    return;
  }
  validation_loss = message.loss();
  Log("validation", {{"step", message.step()}, {"loss", message.loss()}});
  const bool committing = std::any_of(saves.begin(), saves.end(), [&](const auto& save) {
    return save.first.first == message.step() && save.second.committing;
  });
  if (committing || std::binary_search(checkpoints.begin(), checkpoints.end(), message.step())) {
    actions.emplace_back(NoteValidation{message.step(), message.loss()});
  }
}

// ---- Checkpoints ----

void Coordinator::State::AbandonSave(const std::pair<int64_t, int64_t>& key) {
  saves.erase(key);
  actions.emplace_back(AbandonCheckpoint{key.first, key.second});
}

void Coordinator::State::OnCheckpointPart(Worker& worker,
                                          const wire::CheckpointPart& message,
                                          Time /*now*/) {
  const std::pair<int64_t, int64_t> key(message.step(), message.generation());
  if (phase == Phase::kDone ||
      std::binary_search(checkpoints.begin(), checkpoints.end(), message.step())) {
    return;
  }
  if (message.skipped()) {
    Log("checkpoint_skipped", {{"step", message.step()}});
    return;
  }
  auto found = saves.find(key);
  if (found == saves.end()) {
    if (!held || held->number != message.generation() || !IsMember(worker.name)) {
      return;
    }
    PendingSave save;
    save.plan_json = held->plan.plan_json;
    // Which of its holders writes a parameter is the workers' affair; each of them reports.
    for (size_t rank = 0; rank < held->plan.parameters.size(); ++rank) {
      if (!held->plan.parameters[rank].empty()) {
        save.writers.push_back(held->plan.members[rank]);
      }
    }
    const bool possible = std::all_of(save.writers.begin(), save.writers.end(),
                                      [&](const std::string& name) { return IsMember(name); });
    if (!possible) {
      return;
    }
    found = saves.emplace(key, std::move(save)).first;
  }
  PendingSave& save = found->second;
  const bool writes =
      std::find(save.writers.begin(), save.writers.end(), worker.name) != save.writers.end();
  if (save.committing || !writes) {
    return;
  }
  if (!message.error().empty() && !save.failed) {
    save.failed = true;
    save_error = message.error();
    Log("checkpoint_failed", {{"step", message.step()}, {"reason", message.error()}});
    actions.emplace_back(AbandonCheckpoint{key.first, key.second});
  }
  save.parts[worker.name] = message.part();
  save.stall_seconds = std::max(save.stall_seconds, message.stall_seconds());
  if (save.parts.size() < save.writers.size()) {
    return;
  }
  if (save.failed) {
    saves.erase(found);
    return;
  }
  save.committing = true;
  CommitCheckpoint commit;
  commit.step = message.step();
  commit.generation = message.generation();
  commit.plan_json = save.plan_json;
  if (const auto validation = validated.find(message.step()); validation != validated.end()) {
    commit.validation_loss = validation->second;
  }
  for (const std::string& name : save.writers) {
    commit.parts.push_back(save.parts.at(name));
  }
  actions.emplace_back(std::move(commit));
}

void Coordinator::State::On(const CheckpointCommitted& event, Time now) {
  const auto found = saves.find({event.step, event.generation});
  if (found == saves.end() || phase == Phase::kDone) {
    return;
  }
  const double stall = found->second.stall_seconds;
  saves.erase(found);
  if (!event.status.ok()) {
    save_error = event.status.ToString();
    Log("checkpoint_failed", {{"step", event.step}, {"reason", event.status.ToString()}});
    return;
  }
  save_error.clear();
  state_bytes = event.raw_bytes > 0 ? static_cast<double>(event.raw_bytes) : state_bytes;
  checkpoints.insert(std::upper_bound(checkpoints.begin(), checkpoints.end(), event.step),
                     event.step);
  checkpoints.erase(std::unique(checkpoints.begin(), checkpoints.end()), checkpoints.end());
  SaveState(now);
  Log("checkpoint", {{"step", event.step},
                     {"bytes", event.bytes},
                     {"raw_bytes", event.raw_bytes},
                     {"stall_seconds", stall},
                     {"seconds", event.seconds}});
  std::vector<std::pair<int64_t, int64_t>> older;
  for (const auto& [key, save] : saves) {
    if (key.first <= event.step && !save.committing) {
      older.push_back(key);
    }
  }
  for (const auto& key : older) {
    AbandonSave(key);
  }
}

// ---- The end ----

void Coordinator::State::FinishIfDone(Time now) {
  if (phase != Phase::kRunning || !held || held->members.empty() ||
      finished.size() != held->members.size() ||
      (transition && transition->kind != Transition::Kind::kChange)) {
    return;
  }
  transition.reset();
  const int64_t last = policy().total_steps;
  if (!finished_since) {
    finished_since = now;
  }
  const bool saved = !CheckpointDue(policy(), last) ||
                     std::binary_search(checkpoints.begin(), checkpoints.end(), last);
  if (known_step >= last && saved) {
    Log("job_finished", {{"step", known_step}, {"loss", last_record.loss()}});
    return End(true, false, "the job is done", now);
  }
  if (!save_error.empty() || now - *finished_since >= policy().stop_timeout) {
    End(false, false,
        save_error.empty() ? "the last checkpoint was not completed in time"
                           : "the last checkpoint failed: " + save_error,
        now);
  }
}

}  // namespace heddle::elastic
