/// \file
/// Checks of how generations follow each other: every message to a worker is checked against all
/// that went before and against the truth that only the simulation knows.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "elastic/control/actions.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;
class CoordinatorProcess;

/// Checks of the generations' order and state. Thread: one caller.
class Ledger {
 public:
  explicit Ledger(Cluster& cluster) : cluster_(cluster) {}

  // The coordinator's actions.
  /// Checks a message to a worker. A coordinator that no longer owns the store may send only what
  /// was durable when another one took over.
  void CheckSent(const CoordinatorProcess& from, const wire::ToWorker& message);
  /// A coordinator begins with an empty store. `generation` is the highest on storage: generations
  /// with higher numbers belong to another history.
  void BeginEra(int64_t generation);
  /// The coordinator heard which checkpoints were committed and pruned, or knows more alterations.
  void NoteCheckpoints() { checkpoints_changed_ = true; }
  /// Checks, when the coordinator has heard everything, that the checkpoint from which it would go
  /// on exists and belongs to the history that counts. Does nothing if no checkpoint changed since
  /// the last check, and after the job's end.
  void CheckCheckpoints();

  // The workers' actions.
  /// The coordinator hears a worker's message.
  void NoteHeard(const wire::FromWorker& message);
  /// A member begins to run a generation; checks that all its members begin after the same step.
  void NoteRun(int64_t generation, int64_t applied_step);
  /// Checks that a worker may apply its step. A worker that was given up may still complete a step,
  /// which has no effect; a member of a newer generation may not complete a step of an older one.
  void CheckApplies(const SimWorker& worker);

  /// Whether the newest generation is in force, no member reported a failure, and none was told to
  /// stop.
  bool IsWhole() const {
    return newest_halt_ < newest_go_ && !somebody_failed_ &&
           (start_sent_.empty() || start_sent_.rbegin()->first <= newest_go_);
  }
  /// A snapshot could not be read: once that is stored, it and later snapshots of its generation
  /// are void.
  void Refuse(const SnapshotKey& key) { refused_.push_back(key); }
  /// No snapshot after `step` could be read: once that is stored, all of them are void.
  void RefuseAfter(int64_t step) {
    for (const auto& [generation, last] : last_snapshot_) {
      refused_.emplace_back(step + 1, generation);
    }
  }
  /// The coordinator stored its state: the refusals noted until now count.
  void NoteStored();
  /// The job was suspended: it goes on after `step`, from storage, and no snapshot counts.
  void NoteSuspended(int64_t step);
  /// The coordinator's process ended: forgets the refusals that it had not stored.
  void ForgetUnstored() { refused_.clear(); }
  /// The newest generation that was told to begin.
  int64_t newest_go() const { return newest_go_; }
  /// Whether the state after `step` in `generation` belongs to the history that counts.
  bool Counts(int64_t generation, int64_t step) const;
  const wire::Prepare& PrepareOf(int64_t generation) const { return prepared_.at(generation); }
  int64_t StepBefore(int64_t generation) const { return run_after_.at(generation); }

 private:
  void CheckSentByFormer(const DurableState& stored, const wire::ToWorker& message);
  void CheckLinkRequest(const wire::MeasureLinks& request);
  void CheckPrepare(const wire::Prepare& prepare);
  void CheckHolders(const wire::Prepare& prepare);
  void CheckSource(const wire::Start& start);
  void CheckNewest(const wire::Start& start);
  void CheckGo(int64_t generation);
  void NoteGo(int64_t generation);
  void CheckAcknowledged(int64_t known_step);
  bool IsVoid(const SnapshotKey& key) const;

  Cluster& cluster_;
  int64_t newest_go_ = 0;
  int64_t floor_ = 0;                          ///< Generations of this era are above this number.
  std::map<int64_t, wire::Prepare> prepared_;  ///< By generation.
  std::map<int64_t, int64_t> start_sent_;      ///< The steps that Start named, by generation.
  std::map<int64_t, int64_t> begun_;           ///< The steps after which generations began.
  std::map<int64_t, int64_t> run_after_;       ///< As begun_, by the steps that members were told.
  std::map<int64_t, int64_t> last_snapshot_;   ///< The last valid one's step, by begun generation.
  std::set<int64_t> in_force_;             ///< Generations that were stored as the one in force.
  std::vector<SnapshotKey> refused_;       ///< Refused snapshots, not stored yet.
  std::map<int64_t, std::string> probed_;  ///< The pair of each link request, by its number.
  bool checkpoints_changed_ = false;       ///< The checkpoints, or which of them count, changed.
  int64_t newest_halt_ = 0;                ///< The newest generation whose Halt was sent.
  bool somebody_failed_ = false;           ///< A member of the newest generation reported it.
};

}  // namespace heddle::elastic
