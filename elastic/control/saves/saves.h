/// \file
/// Checkpoints: saves whose parts are arriving, and the sound checkpoints on storage. A save ends
/// with one CommitCheckpoint, when all of its writers have reported, or with AbandonCheckpoint, as
/// soon as a writer reports an error or is lost, or a newer checkpoint is committed. A save that
/// failed is not begun again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "elastic/control/events.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/outbox.h"

namespace heddle::elastic {

/// The saves in progress, and the sound checkpoints. Thread: one caller at a time. A copy is an
/// independent machine.
class Saves {
 public:
  /// Steps of sound checkpoints of the history that counts, ascending.
  const std::vector<int64_t>& committed() const { return committed_; }
  bool IsCommitted(int64_t step) const;
  /// True if all parts of the step's checkpoint have arrived and it is being committed.
  bool IsCommitting(int64_t step) const;
  /// Why this save failed; empty if it is not the newest save that failed.
  std::string WhyFailed(int64_t step, int64_t generation) const;
  /// Why the last remaining checkpoint could not be read; empty: that has not happened.
  const std::string& unsound() const { return unsound_; }

  /// Takes the part that a writer reports; the last one leads to the commit.
  void TakePart(const std::string& worker,
                const wire::CheckpointPart& message,
                const Generations& generations,
                const CheckpointFacts& facts,
                Outbox& out);
  /// Takes the result of a commit. True if there is a new checkpoint of the history that counts.
  bool TakeCommit(const CheckpointCommitted& event, Outbox& out);
  /// Abandons the saves for which a lost worker has not reported its part.
  void Lose(const std::string& worker, Outbox& out);
  /// The job continues after `step` again: checkpoints of later steps belong to a history that was
  /// given up. They are no longer offered, and are replaced when those steps are saved again.
  void RollBackTo(int64_t step, Outbox& out);
  /// Rolls back to `step`, and ignores saves of later steps by `generation` from now on: its
  /// members had different replicas of the state.
  void VoidAfter(int64_t step, int64_t generation, Outbox& out);
  /// Forgets the checkpoints of these steps, which are no longer on storage.
  void Forget(const std::vector<int64_t>& steps);
  /// Excludes the checkpoint of `step`, which cannot be read.
  void Refuse(int64_t step, const std::string& reason);

  /// `on_storage`: steps of the checkpoints found there. `given_up`:
  /// DurableState::given_up_checkpoints.
  void Restore(const std::vector<int64_t>& on_storage, const std::vector<int64_t>& given_up = {});
  void Store(DurableState& durable) const;
  /// Checks the invariants. `job_done`: the last checkpoint is committed, so no save may be waiting
  /// for parts. Errors: kInternal.
  Status Check(bool job_done) const;

 private:
  using Key = std::pair<int64_t, int64_t>;  ///< Step and generation.
  struct Pending {
    std::vector<std::string> writers;  ///< By rank.
    std::map<std::string, std::string> parts;
    double stall_seconds = 0;
    bool committing = false;
    bool failed = false;    ///< It was abandoned, and stays here until every writer has reported.
    bool given_up = false;  ///< Its history was given up while it was being committed.
    std::string plan_json;

    bool Writes(const std::string& worker) const;
    bool IsComplete() const { return parts.size() == writers.size(); }
  };

  /// The save of `key`, begun if there is none yet; null if the worker may not begin it.
  Pending* FindOrBegin(const Key& key, const std::string& worker, const Generations& generations);
  template <typename Which>
  void AbandonWhere(Which which, Outbox& out);
  void Fail(const Key& key, const std::string& reason, Outbox& out);

  std::map<Key, Pending> pending_;
  std::vector<int64_t> committed_;
  std::set<int64_t> given_up_;  ///< Steps on storage of a history that was given up.
  Key void_;                    ///< Saves of later steps by this generation are ignored.
  Key failed_;                  ///< The newest save that failed.
  std::string failed_why_;      ///< Why it failed; empty: none has.
  std::string unsound_;
};

}  // namespace heddle::elastic
