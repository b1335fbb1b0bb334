/// \file
/// The records of the job's steps, its validation losses, and the members that have run its last
/// step.
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

/// The job's step records and validation losses. Thread: one caller at a time. A copy is an
/// independent machine.
class Steps {
 public:
  /// The last step whose record is known; so are the records of all steps before it.
  int64_t known() const { return known_; }
  /// known() as it was last stored.
  int64_t durable() const { return durable_; }
  /// The record of step known(); null if this coordinator has not received it.
  const wire::StepRecord* last_record() const;
  /// Seconds of a step, smoothed over the last ones; 0: none was measured.
  double seconds() const { return seconds_; }
  /// The newest validation loss of the history that counts; nullopt: none is known.
  std::optional<double> validation_loss() const;
  /// The times of the steps of the generation in force.
  const StepTimes& times() const { return times_; }
  /// Drops these times, because the speed of a worker has just changed.
  void ForgetTimes() { times_.Clear(); }
  /// The validation loss after `step` of the history that counts; nullopt: not known.
  std::optional<double> ValidationOf(int64_t step) const;

  /// Takes records, which may come in any order and more than once; each is logged once, in the
  /// order of steps. Records far beyond a gap are dropped. Returns why the job fails; empty if it
  /// continues.
  std::string Take(const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
                   const JobPolicy& policy,
                   Outbox& out);
  /// Takes a validation loss. True if it was not known.
  bool TakeValidation(const wire::Validation& message, Outbox& out);
  /// Drops records and validation losses of later steps.
  void RollBackTo(int64_t step);
  /// Rolls back to `step`, and expects the record of step + 1 next.
  void GoOnAfter(int64_t step);

  /// Members of the generation in force that have run the job's last step.
  const std::set<std::string>& finished() const { return finished_; }
  void Finish(const std::string& worker) { finished_.insert(worker); }
  void Forget(const std::string& worker) { finished_.erase(worker); }
  void BeginGeneration();
  /// Called when all members have finished. Returns how the job ends; nullopt while the last
  /// records or the checkpoint are awaited. `saved`: no checkpoint is awaited. `save_error`: why
  /// the checkpoint failed; empty if it has not.
  std::optional<EndJob> Close(
      const JobPolicy& policy, bool saved, const std::string& save_error, Time now, Outbox& out);

  /// Restarts the time limit of Close, because workers could not be heard until `now`.
  void PutOffEnd(Time now) { finished_since_ = now; }
  void Restore(const DurableState& durable, Time now);
  void Store(DurableState& durable, Time now);
  /// True if known() is to be made durable now, which is not done for every step.
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
