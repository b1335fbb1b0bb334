#include "tests/elastic/simulation/coordinator/storage.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

constexpr size_t kCheckpointsKept = 3;

}  // namespace

SimState SimStorage::StateIn(const CommitCheckpoint& commit) const {
  SimState state;
  for (const std::string& part : commit.parts) {
    std::istringstream words(part);
    int32_t parameter = 0;
    SimParameter value;
    while (words >> parameter >> value.step >> value.chain >> value.altered) {
      if (value.step != commit.step ||
          (value.altered == 0 && value.chain != cluster_.undisturbed.Chain(commit.step))) {
        cluster_.world.Fail(fmt::format("checkpoint {} holds another state", commit.step));
      }
      state[parameter] = value;
    }
  }
  if (state.size() != kSimParameters) {
    cluster_.world.Fail(fmt::format("checkpoint {} is not complete", commit.step));
  }
  return state;
}

void SimStorage::Keep(const CommitCheckpoint& commit, const SimState& state) {
  committed_[commit.step] = {commit.generation, state, commit.facts.provenance};
  highest_generation_ = std::max(highest_generation_, commit.generation);
}

void SimStorage::CountAs(int64_t generation) {
  for (auto& [step, stored] : committed_) {
    stored.generation = generation;
  }
}

void SimStorage::Commit(CoordinatorProcess& asker, const CommitCheckpoint& commit) {
  const SimState state = StateIn(commit);
  World& world = cluster_.world;
  const int64_t number = world.NextNumber();
  if (!asker.fenced()) {
    cluster_.provenance.CheckCommit(commit);
    committing_[number] = commit;
  }
  world.After(1, 60, [this, commit, state, number, &asker] {
    CheckpointCommitted done;
    done.step = commit.step;
    done.generation = commit.generation;
    if (committing_.erase(number) == 0) {  // Its turn ended before or after the rename.
      done.status = AbortedError("another coordinator owns the store");
      return asker.Tell(done);
    }
    done.raw_bytes = cluster_.world.options().tells_moves ? 8 * kSimParameters : 0;
    Keep(commit, state);
    done.pruned = Prune(commit.step);
    asker.Tell(done);
  });
}

void SimStorage::StopCommitting() {
  for (const auto& [number, commit] : committing_) {
    if (cluster_.world.random().Below(2) == 0) {  // The rename was done, and nobody heard of it.
      Keep(commit, StateIn(commit));
    }
  }
  committing_.clear();
}

std::vector<int64_t> SimStorage::Prune(int64_t sound) {
  std::vector<int64_t> pruned;
  for (auto it = committed_.begin();
       committed_.size() > kCheckpointsKept && it != committed_.end();) {
    if (it->first != sound) {
      pruned.push_back(it->first);
      it = committed_.erase(it);
    } else {
      ++it;
    }
  }
  return pruned;
}

std::vector<int64_t> SimStorage::Find() const {
  std::vector<int64_t> steps;
  for (const auto& [step, stored] : committed_) {
    steps.push_back(step);
  }
  while (!steps.empty() && IsDamaged(steps.back())) {
    steps.pop_back();
  }
  return steps;
}

std::optional<Provenance> SimStorage::FindProvenance() const {
  const std::vector<int64_t> found = Find();
  return found.empty() ? std::nullopt : std::optional(committed_.at(found.back()).provenance);
}

std::optional<int64_t> SimStorage::GenerationOf(int64_t step) const {
  const auto stored = committed_.find(step);
  return stored == committed_.end() ? std::nullopt
                                    : std::optional<int64_t>(stored->second.generation);
}

bool SimStorage::IsDamaged(int64_t step) const {
  const auto stored = committed_.find(step);
  return stored != committed_.end() && stored->second.damaged;
}

}  // namespace heddle::elastic
