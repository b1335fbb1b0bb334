/// \file
/// The record of the job's steps, of its validation losses, and of who has run the last step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <google/protobuf/repeated_ptr_field.h>

#include "base/clock.h"
#include "elastic/control/outbox.h"
#include "elastic/control/policy.h"
#include "elastic/control/steps/step_times.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Steps {
 public:
  /// The last step whose record is known, and all before it are.
  int64_t known() const { return known_; }
  int64_t durable() const { return durable_; }
  /// That of known(); null: a coordinator that goes on from it has not heard it.
  const wire::StepRecord* last_record() const;
  /// Of a step, smoothed over some; 0: none was measured.
  double seconds() const { return seconds_; }
  /// Of the history that counts, the newest; none: not known.
  std::optional<double> validation_loss() const;
  /// Of the generation in force.
  const StepTimes& times() const { return times_; }
  /// The loss after a step of the history that counts; none: not known.
  std::optional<double> ValidationOf(int64_t step) const;

  /// In any order, and more than once; each is logged once and in the order of steps. Those far
  /// beyond a gap are not kept. Why the job fails; empty: it goes on.
  std::string Take(const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
                   const JobPolicy& policy,
                   Outbox& out);
  /// Whether it was not known.
  bool TakeValidation(const wire::Validation& message, Outbox& out);
  /// What later records said is void.
  void RollBackTo(int64_t step);
  /// The same, and the next record is that of step + 1.
  void GoOnAfter(int64_t step);

  /// Members that ran the last step of the generation in force.
  const std::set<std::string>& finished() const { return finished_; }
  void Finish(const std::string& worker) { finished_.insert(worker); }
  void Forget(const std::string& worker) { finished_.erase(worker); }
  void BeginGeneration();
  /// All members have finished: how the job ends; none: the last records or the checkpoint are
  /// still to come. `save_error`: why the checkpoint failed; empty: it has not.
  std::optional<EndJob> Close(
      const JobPolicy& policy, bool saved, const std::string& save_error, Time now, Outbox& out);

  /// What is missing for the end could not be heard until now: its time begins anew.
  void PutOffEnd(Time now) { finished_since_ = now; }
  void Restore(const DurableState& durable, Time now);
  void Store(DurableState& durable, Time now);
  /// Whether what is known is to be made durable: not for every step.
  bool StoreIsDue(Time now) const;
  /// `running`: a generation is in force.
  std::optional<Time> NextDeadline(const JobPolicy& policy, bool running) const;

 private:
  bool AwaitsStore() const { return known_ > durable_; }
  void TakeNext(const wire::StepRecord& record, Outbox& out);

  int64_t known_ = 0;
  int64_t durable_ = 0;
  std::optional<Time> stored_at_;
  std::map<int64_t, wire::StepRecord> early_;  ///< Records beyond known_ + 1.
  wire::StepRecord last_record_;
  double seconds_ = 0;
  StepTimes times_;
  std::map<int64_t, double> validated_;  ///< Losses by step.
  std::set<std::string> finished_;
  std::optional<Time> finished_since_;
};

}  // namespace heddle::elastic
