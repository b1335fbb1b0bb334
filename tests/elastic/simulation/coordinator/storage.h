/// \file
/// Checkpoints on storage: committed, pruned, damaged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "elastic/control/actions.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;
class CoordinatorProcess;

/// Thread: one caller.
class SimStorage {
 public:
  explicit SimStorage(Cluster& cluster) : cluster_(cluster) {}

  /// Answered by CheckpointCommitted: with an error when another coordinator owns the store.
  void Commit(CoordinatorProcess& asker, const CommitCheckpoint& commit);
  /// With the coordinator's process, or with its turn, before or after what it was at was done.
  void StopCommitting();
  /// As a coordinator finds them when it starts: only the newest sound one is read in full.
  std::vector<int64_t> Find() const;
  void Damage(int64_t step) { committed_.at(step).damaged = true; }

  /// That a commit here was of.
  int64_t HighestGeneration() const { return highest_generation_; }
  /// All that is here is of this generation from now on.
  void CountAs(int64_t generation);

  bool empty() const { return committed_.empty(); }
  int64_t newest() const { return committed_.rbegin()->first; }
  /// The generation that wrote it; none: it is not there.
  std::optional<int64_t> GenerationOf(int64_t step) const;
  bool IsDamaged(int64_t step) const;
  /// Of a checkpoint that is there.
  SimParameter Read(int64_t step, int32_t parameter) const {
    return committed_.at(step).state.at(parameter);
  }

 private:
  struct Stored {
    int64_t generation = 0;
    SimState state = {};
    bool damaged = false;
  };

  void Keep(const CommitCheckpoint& commit, const SimState& state);
  /// What it is a checkpoint of.
  SimState StateIn(const CommitCheckpoint& commit) const;
  /// The newest few stay, whatever history they are of, and the one that was just committed.
  std::vector<int64_t> Prune(int64_t sound);

  Cluster& cluster_;
  int64_t highest_generation_ = 0;
  std::map<int64_t, Stored> committed_;  ///< By step.
  std::map<int64_t, CommitCheckpoint> committing_;
};

}  // namespace heddle::elastic
