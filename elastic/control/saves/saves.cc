#include "elastic/control/saves/saves.h"

#include <algorithm>

namespace heddle::elastic {

bool Saves::Pending::Writes(const std::string& worker) const {
  return std::find(writers.begin(), writers.end(), worker) != writers.end();
}

bool Saves::IsCommitted(int64_t step) const {
  return std::binary_search(committed_.begin(), committed_.end(), step);
}

bool Saves::IsCommitting(int64_t step) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const auto& save) {
    return save.first.first == step && save.second.committing;
  });
}

// Told once each; what is written of them may be removed.
template <typename Which>
void Saves::AbandonWhere(Which which, Outbox& out) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!it->second.committing && which(it->first, it->second)) {
      out.Add(AbandonCheckpoint{it->first.first, it->first.second});
      it = pending_.erase(it);
    } else {
      ++it;
    }
  }
}

Saves::Pending* Saves::FindOrBegin(const Key& key,
                                   const std::string& worker,
                                   const Generations& generations) {
  if (const auto found = pending_.find(key); found != pending_.end()) {
    return &found->second;
  }
  const auto& held = generations.held();
  if (!held || held->number != key.second || !generations.IsMember(worker)) {
    return nullptr;
  }
  Pending save;
  save.plan_json = held->plan.plan_json;
  // Which of its holders writes a parameter is the workers' affair; each of them reports.
  for (size_t rank = 0; rank < held->plan.parameters.size(); ++rank) {
    if (!held->plan.parameters[rank].empty()) {
      save.writers.push_back(held->plan.members[rank]);
    }
  }
  const bool possible =
      std::all_of(save.writers.begin(), save.writers.end(),
                  [&](const std::string& name) { return generations.IsMember(name); });
  return possible ? &pending_.emplace(key, std::move(save)).first->second : nullptr;
}

void Saves::TakePart(const std::string& worker,
                     const wire::CheckpointPart& message,
                     const Generations& generations,
                     std::optional<double> validation_loss,
                     Outbox& out) {
  if (IsCommitted(message.step())) {
    return;
  }
  if (message.skipped()) {
    out.Log("checkpoint_skipped", {{"step", message.step()}});
    return;
  }
  const Key key(message.step(), message.generation());
  Pending* const save = FindOrBegin(key, worker, generations);
  if (save == nullptr || save->committing || !save->Writes(worker)) {
    return;
  }
  if (!message.error().empty() && !save->failed) {
    save->failed = true;
    error_ = message.error();
    out.Log("checkpoint_failed", {{"step", message.step()}, {"reason", message.error()}});
    out.Add(AbandonCheckpoint{key.first, key.second});
  }
  save->parts[worker] = message.part();
  save->stall_seconds = std::max(save->stall_seconds, message.stall_seconds());
  if (!save->IsComplete()) {
    return;
  }
  if (save->failed) {
    pending_.erase(key);
    return;
  }
  save->committing = true;
  CommitCheckpoint commit;
  commit.step = message.step();
  commit.generation = message.generation();
  commit.plan_json = save->plan_json;
  commit.validation_loss = validation_loss;
  for (const std::string& name : save->writers) {
    commit.parts.push_back(save->parts.at(name));
  }
  out.Add(std::move(commit));
}

bool Saves::TakeCommit(const CheckpointCommitted& event, Outbox& out) {
  const auto found = pending_.find({event.step, event.generation});
  if (found == pending_.end()) {
    return false;
  }
  const double stall = found->second.stall_seconds;
  pending_.erase(found);
  if (!event.status.ok()) {
    error_ = event.status.ToString();
    out.Log("checkpoint_failed", {{"step", event.step}, {"reason", error_}});
    return false;
  }
  error_.clear();
  if (!IsCommitted(event.step)) {
    committed_.insert(std::upper_bound(committed_.begin(), committed_.end(), event.step),
                      event.step);
  }
  out.Persist();
  out.Log("checkpoint", {{"step", event.step},
                         {"bytes", event.bytes},
                         {"raw_bytes", event.raw_bytes},
                         {"stall_seconds", stall},
                         {"seconds", event.seconds}});
  AbandonWhere([&](const Key& key, const Pending&) { return key.first <= event.step; }, out);
  return true;
}

void Saves::Lose(const std::string& worker, Outbox& out) {
  AbandonWhere(
      [&](const Key&, const Pending& save) {
        return save.Writes(worker) && save.parts.count(worker) == 0;
      },
      out);
}

void Saves::Refuse(int64_t step, const std::string& reason) {
  std::erase(committed_, step);
  if (committed_.empty()) {
    unsound_ = reason;
  }
}

Status Saves::Check(bool job_done) const {
  for (const auto& [key, save] : pending_) {
    if (save.IsComplete() != save.committing) {
      return InternalError("the save of step {}, generation {}, has {} parts of {} and is {}",
                           key.first, key.second, save.parts.size(), save.writers.size(),
                           save.committing ? "being committed" : "waited for");
    }
    if (job_done && !save.committing) {
      return InternalError("the save of step {}, generation {}, is neither committed nor given up",
                           key.first, key.second);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
