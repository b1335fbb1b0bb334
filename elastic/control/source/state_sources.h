/// \file
/// Where a new generation takes its state from: survivors' tensors, a snapshot in workers' memory,
/// a checkpoint, or the seed; whichever has the job where it was in the fewest seconds.
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

/// A state that a generation can go on from.
struct SourceOption {
  Source source = Source::kInitial;
  int64_t step = 0;
  int64_t snapshot_generation = 0;        ///< kReplicas: that it was taken in.
  std::vector<std::string> holders = {};  ///< kReplicas, kLive: whose memory it is in, sorted.
  std::optional<wire::Start::Settle> settle = {};  ///< kLive: what some of them are to apply first.
  /// kReplicas: every holder with all that it has of the snapshot: who gives what is the workers'
  /// affair.
  wire::Start::Replicas replicas = {};
  double bytes = 0;    ///< About so many are to be moved.
  double seconds = 0;  ///< Predicted, until the job is where it was.
};

/// What survivors said, by name.
using Survey = std::map<std::string, wire::Halted>;

/// Thread: one caller at a time. A copy is an independent machine.
class StateSources {
 public:
  /// After a loss: the quickest first; empty: no checkpoint is sound, and nothing is in memory.
  std::vector<SourceOption> Options(const Survey& halted,
                                    const Generations& generations,
                                    const Steps& steps,
                                    const Saves& saves,
                                    const RecoveryPolicy& policy);
  /// The newest checkpoint, or the seed; none: no checkpoint is sound, and to begin anew would lose
  /// the run without a word.
  std::optional<SourceOption> Stored(const Saves& saves) const;

  /// A snapshot could not be read. It is not offered again.
  void RefuseSnapshot(int64_t generation, int64_t step);
  /// No snapshot of a later step is offered.
  void VoidAfter(int64_t step);
  /// Single holders' copies of a state. They are not offered again.
  Refusals& refusals() { return refusals_; }
  /// So many bytes are the elements of the whole state.
  void NoteStateBytes(int64_t bytes);
  /// A move is complete: how quick its source was.
  void NoteMove(Source source, const std::map<std::string, wire::Ready>& ready);
  /// The generation goes on after `step`: snapshots of later steps are void, and its own may be
  /// kept from now on.
  void BeginGeneration(const DurableGeneration& held, int64_t step, const JobPolicy& policy);
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
  /// Of a source that is being moved from: every part is held by somebody.
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

  std::map<int64_t, SnapshotSource> snapshots_;  ///< By generation; parts may be in memory.
  Refusals refusals_;
  double state_bytes_ = 0;                   ///< Of the whole state's elements; 0: unknown.
  std::map<Source, double> measured_rates_;  ///< Bytes a second of the last move by source.
};

/// By rank: who keeps the member's replicas; empty: no snapshots are kept.
std::vector<std::vector<int32_t>> HoldersOf(const PlanOutcome& plan,
                                            const Roster& roster,
                                            const JobPolicy& policy);

}  // namespace heddle::elastic
