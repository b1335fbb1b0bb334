#include "elastic/member/reports.h"

namespace heddle::elastic {
namespace {

constexpr size_t kMaxUnheardSaves = 4;
constexpr size_t kMaxUnheardValidations = 16;

template <typename T>
void Keep(std::deque<T>& queue, const T& newest, size_t max) {
  queue.push_back(newest);
  while (queue.size() > max) {
    queue.pop_front();
  }
}

}  // namespace

void Reports::AddStep(const wire::StepRecord& record) {
  ForgetStepsAfter(record.step() - 1);
  Keep(steps_, record, max_steps_);
}

void Reports::ForgetStepsThrough(int64_t step) {
  while (!steps_.empty() && steps_.front().step() <= step) {
    steps_.pop_front();
  }
}

void Reports::ForgetStepsAfter(int64_t step) {
  while (!steps_.empty() && steps_.back().step() > step) {
    steps_.pop_back();
  }
}

google::protobuf::RepeatedPtrField<wire::StepRecord> Reports::StepsAfter(int64_t step) const {
  google::protobuf::RepeatedPtrField<wire::StepRecord> records;
  for (const wire::StepRecord& record : steps_) {
    if (record.step() > step) {
      *records.Add() = record;
    }
  }
  return records;
}

void Reports::AddSave(const wire::CheckpointPart& part, MemberOutbox& out) {
  if (!part.skipped()) {  // Kept for a coordinator that comes back.
    Keep(saves_, part, kMaxUnheardSaves);
  }
  out.Send(part);
}

void Reports::AddValidation(const Validated& event, MemberOutbox& out) {
  wire::Validation message;
  message.set_step(event.step);
  message.set_generation(event.generation);
  message.set_loss(event.loss);
  Keep(validations_, message, kMaxUnheardValidations);
  out.Send(message);
}

void Reports::SayStepsAfter(int64_t step, MemberOutbox& out) const {
  wire::StepDone message;
  *message.mutable_records() = StepsAfter(step);
  if (message.records_size() > 0) {
    out.Send(message);
  }
}

void Reports::SayOthersAgain(MemberOutbox& out) const {
  for (const wire::CheckpointPart& part : saves_) {
    out.Send(part);
  }
  for (const wire::Validation& validation : validations_) {
    out.Send(validation);
  }
}

}  // namespace heddle::elastic
