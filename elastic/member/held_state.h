/// \file
/// A description of the training state in this worker's memory: its generation and step, and what
/// is known of the next step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "elastic/member/member_outbox.h"
#include "elastic/member/reports.h"

namespace heddle::elastic {

/// Which state this worker holds. Thread: one caller at a time. A copy is an independent machine.
class HeldState {
 public:
  /// The generation of the held state; 0: none is held.
  int64_t generation() const { return generation_; }
  /// The step after which the held state is.
  int64_t applied_step() const { return applied_step_; }

  /// Notes that a step was applied to the state.
  void Apply(const wire::StepRecord& record);
  /// Notes the last applied step of a run, and what is known of the next one.
  void EndRun(const RunEnded& event);
  /// Brings the state to what `start` expects: adopts or discards staged state whose Go did not
  /// come, and applies the next step if other workers have applied it. True if this worker's state
  /// is a source of the move. `worker`: the name of this worker.
  bool Settle(const wire::Start& start,
              const std::string& worker,
              Reports& reports,
              MemberOutbox& out);

  /// Notes that the state after `step` was moved completely for `generation`, beside the held one.
  void Stage(int64_t generation, int64_t step) { staged_ = Staged{generation, step}; }
  /// Replaces the held state by the staged one. Precondition: there is one.
  void Adopt(MemberOutbox& out);
  /// Notes that no state is held, after this worker gave its state away and got none.
  void Drop() { generation_ = applied_step_ = 0; }

  /// Sets the list of all shards of snapshots that are held in memory.
  void SetReplicas(const std::vector<wire::Halted::Replicas>& replicas) { replicas_ = replicas; }

  /// Fills in the message's description of the held and the staged state.
  void Describe(wire::Hello& message) const;
  /// Fills in the message's description of the held state.
  void Describe(wire::Heartbeat& message) const;
  /// Fills in the description of all state, and appends the record of the next step to those of
  /// `message` if it is known.
  void Describe(wire::Halted& message) const;

 private:
  struct Staged {
    int64_t generation = 0;
    int64_t step = 0;
  };

  int64_t generation_ = 0;
  int64_t applied_step_ = 0;
  double norm_ = 0;          ///< Gradient norm of applied_step_.
  bool not_finite_ = false;  ///< The vote refused the update of applied_step_.
  bool voted_ = false;       ///< This worker's gradients of applied_step_ + 1 are complete.
  std::optional<wire::StepRecord> voted_record_;  ///< Record of applied_step_ + 1, if it is known.
  std::optional<Staged> staged_;
  std::vector<wire::Halted::Replicas> replicas_;
};

}  // namespace heddle::elastic
