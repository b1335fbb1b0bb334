/// \file
/// Where a new generation takes its state from: the survivors' tensors, a snapshot in the workers'
/// memory, a checkpoint, or the seed. The source with the shortest predicted recovery is chosen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/membership/generations.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/policy.h"
#include "elastic/control/saves/saves.h"
#include "elastic/control/source/refusals.h"
#include "elastic/control/steps/steps.h"

namespace heddle::elastic {

/// "initial", "checkpoint", "replicas" or "live".
const char* NameOf(Source source);

/// A state that a generation can continue from.
struct SourceOption {
  Source source = Source::kInitial;
  int64_t step = 0;
  int64_t snapshot_generation = 0;        ///< kReplicas: the generation that took the snapshot.
  std::vector<std::string> holders = {};  ///< kReplicas, kLive: names of its holders, sorted.
  /// kLive: the step that holders which are one step behind apply first.
  std::optional<wire::Start::Settle> settle = {};
  /// kReplicas: every holder with all shards that it holds. The workers choose who sends which.
  wire::Start::Replicas replicas = {};
  double bytes = 0;    ///< Estimated bytes to be moved.
  double seconds = 0;  ///< Predicted seconds until the job is back at its newest step.
};

/// The survivors' Halted messages, by worker name.
using Survey = std::map<std::string, wire::Halted>;

/// The sources that a generation can take its state from. Thread: one caller at a time. A copy is
/// an independent machine.
class StateSources {
 public:
  /// The possible sources: RecoveryPolicy::prefer first, then the quickest. Empty if no checkpoint
  /// is sound and the workers do not hold the state.
  std::vector<SourceOption> Options(const Survey& halted,
                                    const Generations& generations,
                                    const Steps& steps,
                                    const Saves& saves,
                                    const RecoveryPolicy& policy);
  /// The newest checkpoint, or the seed if there never was one. nullopt if no checkpoint is sound:
  /// starting from the seed would silently lose the run.
  std::optional<SourceOption> Stored(const Saves& saves) const;

  /// Excludes a snapshot that could not be read, and later ones of its generation.
  void RefuseSnapshot(int64_t generation, int64_t step);
  /// Excludes all snapshots of later steps.
  void VoidAfter(int64_t step);
  /// The refused copies of single holders, which are not offered again.
  Refusals& refusals() { return refusals_; }
  /// Sets the bytes of the whole state's elements; 0 or less is ignored.
  void NoteStateBytes(int64_t bytes);
  /// Records the rate of a completed move from `source`, unless it moved too little of the state.
  void NoteMove(Source source, const std::map<std::string, wire::Ready>& ready);
  /// `held` is in force and continues after `step`: excludes snapshots of later steps, and expects
  /// snapshots of `held` from now on.
  void BeginGeneration(const DurableGeneration& held, int64_t step, const JobPolicy& policy);
  /// Forgets all snapshots and refusals.
  void Clear() {
    snapshots_.clear();
    refusals_ = {};
  }

  void Restore(const DurableState& durable) {
    snapshots_ = durable.snapshots;
    refusals_.Restore(durable);
  }
  void Store(DurableState& durable) const {
    durable.snapshots = snapshots_;
    refusals_.Store(durable);
  }
  /// Checks that every shard of a chosen snapshot has a holder. Errors: kInternal.
  Status Check(const SourceOption& chosen) const;

 private:
  std::optional<SourceOption> Live(const Survey& halted, const Generations& generations) const;
  std::optional<SourceOption> InMemory(const Survey& halted, int64_t known_step) const;
  wire::Start::Replicas ReplicasOf(const Survey& halted,
                                   int64_t generation,
                                   int64_t step,
                                   const std::vector<std::string>& holders) const;
  double PredictedSeconds(const SourceOption& option,
                          int64_t newest_step,
                          double step_seconds,
                          const RecoveryPolicy& policy) const;

  std::map<int64_t, SnapshotSource> snapshots_;  ///< By generation; workers may hold their shards.
  Refusals refusals_;
  double state_bytes_ = 0;                   ///< Bytes of the whole state's elements; 0: unknown.
  std::map<Source, double> measured_rates_;  ///< Bytes per second of the last move, by source.
};

/// By rank of the plan: the ranks that hold replicas of the member's shard. Empty if no snapshots
/// are kept.
std::vector<std::vector<int32_t>> HoldersOf(const PlanOutcome& plan,
                                            const Roster& roster,
                                            const JobPolicy& policy);

}  // namespace heddle::elastic
