/// \file
/// Checkpoints: saves whose parts are coming in, and what is sound on storage. A save ends by one
/// CommitCheckpoint, when all of its writers have reported, or by AbandonCheckpoint: as soon as a
/// writer reports an error, is lost, or a newer checkpoint is committed. One that failed is not
/// begun again.
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

/// Thread: one caller at a time. A copy is an independent machine.
class Saves {
 public:
  /// Steps of sound checkpoints of the history that counts, ascending.
  const std::vector<int64_t>& committed() const { return committed_; }
  bool IsCommitted(int64_t step) const;
  /// Its parts are complete, and the storage is at it.
  bool IsCommitting(int64_t step) const;
  /// Empty: the newest save that failed is another one, or none has.
  std::string WhyFailed(int64_t step, int64_t generation) const;
  /// Why the last checkpoint that was left could not be read; empty: none was left.
  const std::string& unsound() const { return unsound_; }

  void TakePart(const std::string& worker,
                const wire::CheckpointPart& message,
                const Generations& generations,
                const CheckpointFacts& facts,
                Outbox& out);
  /// Whether a checkpoint is committed by this.
  bool TakeCommit(const CheckpointCommitted& event, Outbox& out);
  /// What a lost worker still owed is not waited for.
  void Lose(const std::string& worker, Outbox& out);
  /// The job goes on after `step` once more: checkpoints of later steps are of a history that was
  /// given up. They are no longer offered, and replaced when those steps are saved again.
  void RollBackTo(int64_t step, Outbox& out);
  /// The same, and no save of a later step that `generation` makes counts any more: members had
  /// unlike replicas of the state.
  void VoidAfter(int64_t step, int64_t generation, Outbox& out);
  /// They are no longer on storage.
  void Forget(const std::vector<int64_t>& steps);
  /// The checkpoint cannot be read: it is not offered again.
  void Refuse(int64_t step, const std::string& reason);

  /// `on_storage`: what is found there. `given_up`: of a history that was, as stored.
  void Restore(const std::vector<int64_t>& on_storage, const std::vector<int64_t>& given_up = {});
  void Store(DurableState& durable) const;
  /// `job_done`: with its last checkpoint, after which no save is waited for.
  Status Check(bool job_done) const;

 private:
  using Key = std::pair<int64_t, int64_t>;  ///< Step and generation.
  struct Pending {
    std::vector<std::string> writers;  ///< By rank.
    std::map<std::string, std::string> parts;
    double stall_seconds = 0;
    bool committing = false;
    bool failed = false;    ///< Told and given up. It stays here until every writer has reported.
    bool given_up = false;  ///< Its history was, while it was being committed.
    std::string plan_json;

    bool Writes(const std::string& worker) const;
    bool IsComplete() const { return parts.size() == writers.size(); }
  };

  /// Null: this worker begins none.
  Pending* FindOrBegin(const Key& key, const std::string& worker, const Generations& generations);
  template <typename Which>
  void AbandonWhere(Which which, Outbox& out);
  void Fail(const Key& key, const std::string& reason, Outbox& out);

  std::map<Key, Pending> pending_;
  std::vector<int64_t> committed_;
  std::set<int64_t> given_up_;  ///< On storage, of a history that was given up.
  Key void_;    ///< Saves of this generation of later steps than this one count for nothing.
  Key failed_;  ///< The newest that failed …
  std::string failed_why_;  ///< … and why; empty: none has.
  std::string unsound_;
};

}  // namespace heddle::elastic
