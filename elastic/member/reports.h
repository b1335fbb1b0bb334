/// \file
/// A worker's reports of its steps, saves and validations, kept for a coordinator that may not have
/// received them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include <google/protobuf/repeated_ptr_field.h>

#include "elastic/member/member_outbox.h"

namespace heddle::elastic {

/// The kept reports. Thread: one caller at a time. A copy is an independent machine.
class Reports {
 public:
  /// Keeps the records of at most `max_steps` steps; the oldest are dropped first.
  explicit Reports(size_t max_steps) : max_steps_(max_steps) {}

  /// Adds a step's record; it replaces the records of the same step and of later ones.
  void AddStep(const wire::StepRecord& record);
  /// Drops the records of steps up to and including `step`.
  void ForgetStepsThrough(int64_t step);
  /// Drops the records of steps after `step`.
  void ForgetStepsAfter(int64_t step);
  /// The records of steps after `step`, ascending.
  google::protobuf::RepeatedPtrField<wire::StepRecord> StepsAfter(int64_t step) const;

  /// Sends a part of a checkpoint and, unless its save was skipped, keeps it.
  void AddSave(const wire::CheckpointPart& part, MemberOutbox& out);
  /// Sends a validation loss and keeps it.
  void AddValidation(const Validated& event, MemberOutbox& out);

  /// Sends the records of steps after `step`.
  void SayStepsAfter(int64_t step, MemberOutbox& out) const;
  /// Resends the saves and validations that the coordinator may not have received.
  void SayOthersAgain(MemberOutbox& out) const;

 private:
  size_t max_steps_;
  std::deque<wire::StepRecord> steps_;  ///< Ascending; steps that the coordinator has are dropped.
  std::deque<wire::CheckpointPart> saves_;
  std::deque<wire::Validation> validations_;
};

}  // namespace heddle::elastic
