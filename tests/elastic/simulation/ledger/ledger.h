/// \file
/// How generations follow each other, and whether they may: every message to a worker is checked
/// against all that went before and against the truth that only the simulation knows.
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

/// Thread: one caller.
class Ledger {
 public:
  explicit Ledger(Cluster& cluster) : cluster_(cluster) {}

  // What the coordinator does.
  /// Who no longer owns the store says nothing that was not durable when another one took over.
  void CheckSent(const CoordinatorProcess& from, const wire::ToWorker& message);
  /// A coordinator begins with an empty store. Storage knows this generation: all of later numbers
  /// are of another history.
  void BeginEra(int64_t generation);
  /// It has heard what was committed, and what was pruned then; or knows more of what is altered.
  void NoteCheckpoints() { checkpoints_changed_ = true; }
  /// It has heard everything. What it would go on from is there, and of the history that counts;
  /// looks only where something changed, and
  /// not after the job's end: nobody goes on.
  void CheckCheckpoints();

  // What workers do.
  /// The coordinator hears it.
  void NoteHeard(const wire::FromWorker& message);
  /// All members of a generation begin after the same step.
  void NoteRun(int64_t generation, int64_t applied_step);
  /// A worker that was given up may still complete a step for itself: nobody sees it. One that
  /// counts may not.
  void CheckApplies(const SimWorker& worker);

  /// The newest generation is in force, nobody complains, and nobody was told to stop.
  bool IsWhole() const {
    return newest_halt_ < newest_go_ && !somebody_failed_ &&
           (start_sent_.empty() || start_sent_.rbegin()->first <= newest_go_);
  }
  /// A snapshot could not be read: once that is stored it is void, and so are later ones of its
  /// generation.
  void Refuse(const SnapshotKey& key) { refused_.push_back(key); }
  /// Likewise of all.
  void RefuseAfter(int64_t step) {
    for (const auto& [generation, last] : last_snapshot_) {
      refused_.emplace_back(step + 1, generation);
    }
  }
  void NoteStored();
  /// The job was suspended: it goes on after this step, from storage, and no snapshot counts.
  void NoteSuspended(int64_t step);
  /// The coordinator's process has ended: what it had not stored it does not know any more.
  void ForgetUnstored() { refused_.clear(); }
  /// The newest generation that was told to begin.
  int64_t newest_go() const { return newest_go_; }
  /// Whether the state after a step that `generation` held is of the history that counts.
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
  int64_t floor_ = 0;                          ///< Generations of this era are above it.
  std::map<int64_t, wire::Prepare> prepared_;  ///< By generation.
  std::map<int64_t, int64_t> start_sent_;      ///< Steps that Start named, by generation.
  std::map<int64_t, int64_t> begun_;           ///< Steps after which generations began.
  std::map<int64_t, int64_t> run_after_;       ///< Likewise, as their members were told.
  std::map<int64_t, int64_t> last_snapshot_;   ///< By generation that began: later ones are void.
  std::vector<SnapshotKey> refused_;           ///< Not stored yet.
  std::map<int64_t, std::string> probed_;      ///< Pairs, by request.
  bool checkpoints_changed_ = false;           ///< Or which of them count.
  int64_t newest_halt_ = 0;                    ///< That was sent.
  bool somebody_failed_ = false;               ///< So a member of the newest generation says.
};

}  // namespace heddle::elastic
