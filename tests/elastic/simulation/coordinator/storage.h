/// \file
/// The simulated storage of checkpoints, which are committed, pruned and damaged there.
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

/// The checkpoints on storage. Thread: one caller.
class SimStorage {
 public:
  explicit SimStorage(Cluster& cluster) : cluster_(cluster) {}

  /// Commits a checkpoint; the outcome comes to `asker` as the event CheckpointCommitted, with an
  /// error when another coordinator owns the store.
  void Commit(CoordinatorProcess& asker, const CommitCheckpoint& commit);
  /// The coordinator's process ended, or lost the store: each commit in progress is by chance
  /// finished or abandoned.
  void StopCommitting();
  /// Where the bits of the newest checkpoint that is found come from; nullopt: none is found.
  std::optional<Provenance> FindProvenance() const;
  /// The steps of the checkpoints, as a coordinator finds them when it starts: only the newest
  /// sound one is read in full.
  std::vector<int64_t> Find() const;
  void Damage(int64_t step) { committed_.at(step).damaged = true; }

  /// The highest generation of any commit.
  int64_t HighestGeneration() const { return highest_generation_; }
  /// Counts all checkpoints here as those of `generation` from now on.
  void CountAs(int64_t generation);

  bool empty() const { return committed_.empty(); }
  int64_t newest() const { return committed_.rbegin()->first; }
  /// The generation that wrote the checkpoint of a step; nullopt: there is no such checkpoint.
  std::optional<int64_t> GenerationOf(int64_t step) const;
  bool IsDamaged(int64_t step) const;
  /// A parameter's state in the checkpoint of `step`, which is there.
  SimParameter Read(int64_t step, int32_t parameter) const {
    return committed_.at(step).state.at(parameter);
  }

 private:
  struct Stored {
    int64_t generation = 0;
    SimState state = {};
    Provenance provenance = {};
    bool damaged = false;
  };

  void Keep(const CommitCheckpoint& commit, const SimState& state);
  /// The state that a checkpoint to commit holds.
  SimState StateIn(const CommitCheckpoint& commit) const;
  /// Deletes all checkpoints except the newest few, of any history, and the one that was just
  /// committed.
  std::vector<int64_t> Prune(int64_t sound);

  Cluster& cluster_;
  int64_t highest_generation_ = 0;
  std::map<int64_t, Stored> committed_;  ///< By step.
  std::map<int64_t, CommitCheckpoint> committing_;
};

}  // namespace heddle::elastic
