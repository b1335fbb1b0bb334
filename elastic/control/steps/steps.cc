#include "elastic/control/steps/steps.h"

#include <algorithm>

#include <fmt/format.h>

#include "elastic/control/deadline.h"

namespace heddle::elastic {
namespace {

// How many records beyond a gap are kept until it is filled.
constexpr size_t kMaxEarly = 4096;

// The known step is made durable at least this often; workers report again what a crash loses.
constexpr Duration kStoreEvery = std::chrono::seconds(1);

}  // namespace

const wire::StepRecord* Steps::last_record() const {
  return known_ > 0 && last_record_.step() == known_ ? &last_record_ : nullptr;
}

std::optional<double> Steps::validation_loss() const {
  return validated_.empty() ? std::nullopt : std::optional(validated_.rbegin()->second);
}

std::optional<double> Steps::ValidationOf(int64_t step) const {
  const auto found = validated_.find(step);
  return found == validated_.end() ? std::nullopt : std::optional<double>(found->second);
}

std::string Steps::Take(const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
                        const JobPolicy& policy,
                        Outbox& out) {
  // One by one, because a worker may report all records that it keeps, many more than kMaxEarly.
  for (const wire::StepRecord& record : records) {
    if (record.step() > known_) {
      early_.emplace(record.step(), record);
    }
    while (!early_.empty() && early_.begin()->first == known_ + 1) {
      const wire::StepRecord next = early_.begin()->second;
      early_.erase(early_.begin());
      TakeNext(next, out);
      if (next.not_finite() && policy.stop_on_non_finite) {
        return fmt::format("the loss or the gradient norm of step {} is not finite", next.step());
      }
    }
    if (early_.size() > kMaxEarly) {
      early_.erase(std::prev(early_.end()));
    }
  }
  return "";
}

void Steps::TakeNext(const wire::StepRecord& record, Outbox& out) {
  known_ = record.step();
  last_record_ = record;
  seconds_ = seconds_ == 0 ? record.seconds() : 0.8 * seconds_ + 0.2 * record.seconds();
  times_.Count(record.generation(), record.seconds());
  out.Log("step", {{"step", record.step()},
                   {"generation", record.generation()},
                   {"loss", record.loss()},
                   {"tokens", record.tokens()},
                   {"seconds", record.seconds()},
                   {"first_sample", record.first_sample()},
                   {"samples", record.samples()},
                   {"gradient_norm", record.gradient_norm()}});
}

bool Steps::TakeValidation(const wire::Validation& message, Outbox& out) {
  if (!validated_.emplace(message.step(), message.loss()).second) {
    return false;
  }
  out.Log("validation", {{"step", message.step()}, {"loss", message.loss()}});
  return true;
}

void Steps::RollBackTo(int64_t step) {
  known_ = std::min(known_, step);
  early_.erase(early_.upper_bound(step), early_.end());
  validated_.erase(validated_.upper_bound(step), validated_.end());
}

void Steps::GoOnAfter(int64_t step) {
  RollBackTo(step);
  known_ = step;
  early_.clear();
}

void Steps::BeginGeneration() {
  times_.BeginGeneration();
  finished_.clear();
  finished_since_.reset();
}

std::optional<EndJob> Steps::Close(
    const JobPolicy& policy, bool saved, const std::string& save_error, Time now, Outbox& out) {
  if (!finished_since_) {
    finished_since_ = now;
  }
  if (known_ >= policy.total_steps && saved) {
    if (const wire::StepRecord* const last = last_record()) {
      out.Log("job_finished", {{"step", known_}, {"loss", last->loss()}});
    } else {
      out.Log("job_finished", {{"step", known_}});
    }
    return EndJob{true, false, "the job is done"};
  }
  if (!save_error.empty()) {
    return EndJob{false, false, "the last checkpoint failed: " + save_error};
  }
  if (now - *finished_since_ >= policy.stop_timeout) {
    return EndJob{false, false, "the last checkpoint was not completed in time"};
  }
  return std::nullopt;
}

void Steps::Restore(const DurableState& durable, Time now) {
  known_ = durable_ = durable.known_step;
  stored_at_ = now;
}

void Steps::Store(DurableState& durable, Time now) {
  durable.known_step = durable_ = known_;
  stored_at_ = now;
}

bool Steps::StoreIsDue(Time now) const {
  return AwaitsStore() && (!stored_at_ || now - *stored_at_ >= kStoreEvery);
}

std::optional<Time> Steps::NextDeadline(const JobPolicy& policy, bool running) const {
  std::optional<Time> next;
  if (finished_since_) {
    next = *finished_since_ + policy.stop_timeout;
  }
  if (running && AwaitsStore() && stored_at_) {
    Earlier(next, *stored_at_ + kStoreEvery);
  }
  return next;
}

}  // namespace heddle::elastic
