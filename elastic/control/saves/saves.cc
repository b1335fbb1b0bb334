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
    return save.first.first == step && save.second.committing && !save.second.given_up;
  });
}

std::string Saves::WhyFailed(int64_t step, int64_t generation) const {
  return failed_ == Key(step, generation) ? failed_why_ : "";
}

void Saves::Fail(const Key& key, const std::string& reason, Outbox& out) {
  failed_why_ = reason;
  failed_ = key;
  out.Log("checkpoint_failed", {{"step", key.first}, {"reason", reason}});
}

// Abandons those of `which` that are not being committed. Each is told once, so that what was
// written of it may be removed.
template <typename Which>
void Saves::AbandonWhere(Which which, Outbox& out) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!it->second.committing && which(it->first, it->second)) {
      if (!it->second.failed) {
        out.Add(AbandonCheckpoint{it->first.first, it->first.second});
      }
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
  // Parts of an older save may come again, after a newer one was committed and the older pruned.
  if (!committed_.empty() && key.first <= committed_.back()) {
    return nullptr;
  }
  const auto& held = generations.held();
  if (key.second == void_.second && key.first > void_.first) {
    return nullptr;
  }
  if (!held || held->number != key.second || !generations.IsMember(worker) ||
      !WhyFailed(key.first, key.second).empty()) {
    return nullptr;
  }
  Pending save;
  save.plan_json = held->plan.plan_json;
  // The workers choose which holder of a parameter writes it; each holder reports.
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
                     const CheckpointFacts& facts,
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
    Fail(key, message.error(), out);
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
  commit.facts = facts;
  for (const std::string& name : save->writers) {
    commit.parts.push_back(save->parts.at(name));
  }
  // If all workers were lost now, the job would continue after this step, and none could report its
  // record again.
  out.Persist();
  out.Add(std::move(commit));
}

bool Saves::TakeCommit(const CheckpointCommitted& event, Outbox& out) {
  Forget(event.pruned);
  const auto found = pending_.find({event.step, event.generation});
  if (found == pending_.end()) {
    return false;
  }
  const double stall = found->second.stall_seconds;
  const bool given_up = found->second.given_up;
  pending_.erase(found);
  if (!event.status.ok()) {
    Fail({event.step, event.generation}, event.status.ToString(), out);
    return false;
  }
  if (given_up) {
    if (!IsCommitted(event.step)) {
      given_up_.insert(event.step);
    }
    out.Persist();
    return false;
  }
  given_up_.erase(event.step);
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

void Saves::RollBackTo(int64_t step, Outbox& out) {
  const auto later = std::upper_bound(committed_.begin(), committed_.end(), step);
  given_up_.insert(later, committed_.end());
  committed_.erase(later, committed_.end());
  const auto is_later = [&](const Key& key, const Pending&) { return key.first > step; };
  for (auto& [key, save] : pending_) {
    save.given_up = save.given_up || is_later(key, save);
  }
  AbandonWhere(is_later, out);
}

void Saves::VoidAfter(int64_t step, int64_t generation, Outbox& out) {
  void_ = {step, generation};
  RollBackTo(step, out);
}

void Saves::Forget(const std::vector<int64_t>& steps) {
  for (const int64_t step : steps) {
    std::erase(committed_, step);
    given_up_.erase(step);
  }
}

void Saves::Restore(const std::vector<int64_t>& on_storage, const std::vector<int64_t>& given_up) {
  for (const int64_t step : on_storage) {
    if (std::find(given_up.begin(), given_up.end(), step) != given_up.end()) {
      given_up_.insert(step);
    } else {
      committed_.push_back(step);
    }
  }
}

void Saves::Store(DurableState& durable) const {
  durable.checkpoints = committed_;
  durable.given_up_checkpoints.assign(given_up_.begin(), given_up_.end());
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
