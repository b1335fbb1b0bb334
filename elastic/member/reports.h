/// \file
/// What this worker has to say of its steps, kept for a coordinator that may not have heard it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include <google/protobuf/repeated_ptr_field.h>

#include "elastic/member/member_outbox.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Reports {
 public:
  /// Of so many steps; the oldest go first.
  explicit Reports(size_t max_steps) : max_steps_(max_steps) {}

  /// Records of this step and of later ones are void.
  void AddStep(const wire::StepRecord& record);
  void ForgetStepsThrough(int64_t step);
  void ForgetStepsAfter(int64_t step);
  /// Ascending.
  google::protobuf::RepeatedPtrField<wire::StepRecord> StepsAfter(int64_t step) const;

  void AddSave(const wire::CheckpointPart& part, MemberOutbox& out);
  void AddValidation(const Validated& event, MemberOutbox& out);

  void SayStepsAfter(int64_t step, MemberOutbox& out) const;
  /// Saves and validations that the coordinator may not have heard of.
  void SayOthersAgain(MemberOutbox& out) const;

 private:
  size_t max_steps_;
  std::deque<wire::StepRecord> steps_;  ///< Ascending, after the coordinator's durable step.
  std::deque<wire::CheckpointPart> saves_;
  std::deque<wire::Validation> validations_;
};

}  // namespace heddle::elastic
