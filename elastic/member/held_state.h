/// \file
/// The training state in this worker's memory: which generation's it is, after which step, and what
/// is known of the step after that one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "elastic/member/member_outbox.h"
#include "elastic/member/reports.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class HeldState {
 public:
  int64_t generation() const { return generation_; }  ///< 0: none is held.
  int64_t applied_step() const { return applied_step_; }

  void Apply(const wire::StepRecord& record);
  void EndRun(const RunEnded& event);
  /// Makes what is here that which `start` counts on: what was moved for a Go that did not come is
  /// adopted or dropped, and the step that others have applied is applied. Whether it is a source
  /// of the move. `worker`: this one's name.
  bool Settle(const wire::Start& start,
              const std::string& worker,
              Reports& reports,
              MemberOutbox& out);

  /// Beside the state held there is that of `step` for `generation`, moved completely.
  void Stage(int64_t generation, int64_t step) { staged_ = Staged{generation, step}; }
  /// What is staged becomes the state held.
  void Adopt(MemberOutbox& out);
  /// Nothing is held: the state was only given away.
  void Drop() { generation_ = applied_step_ = 0; }

  /// Parts of snapshots in memory: all of them.
  void SetReplicas(const std::vector<wire::Halted::Replicas>& replicas) { replicas_ = replicas; }

  void Describe(wire::Hello& message) const;
  void Describe(wire::Heartbeat& message) const;
  /// The record of the step that is known but not applied follows those of `message`.
  void Describe(wire::Halted& message) const;

 private:
  struct Staged {
    int64_t generation = 0;
    int64_t step = 0;
  };

  int64_t generation_ = 0;
  int64_t applied_step_ = 0;
  double norm_ = 0;          ///< Of applied_step_.
  bool not_finite_ = false;  ///< Likewise: the vote refused it.
  bool voted_ = false;       ///< Gradients of applied_step_ + 1 are complete.
  std::optional<wire::StepRecord> voted_record_;
  std::optional<Staged> staged_;
  std::vector<wire::Halted::Replicas> replicas_;
};

}  // namespace heddle::elastic
