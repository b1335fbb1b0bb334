#include "elastic/member/held_state.h"

#include <algorithm>

namespace heddle::elastic {

void HeldState::Apply(const wire::StepRecord& record) {
  applied_step_ = record.step();
  norm_ = record.gradient_norm();
  not_finite_ = record.not_finite();
}

void HeldState::EndRun(const RunEnded& event) {
  applied_step_ = event.applied_step;
  voted_ = event.voted;
  voted_record_ = event.voted_record;
}

bool HeldState::Settle(const wire::Start& start,
                       const std::string& worker,
                       Reports& reports,
                       MemberOutbox& out) {
  if (staged_ && start.has_held() && start.held().generation() == staged_->generation) {
    Adopt(out);
  } else if (staged_) {
    out.Add(DiscardState{staged_->generation});
    staged_.reset();
  }
  const auto& holders = start.held().workers();
  const bool counts = start.has_held() && start.held().generation() == generation_ &&
                      std::ranges::find(holders, worker) != holders.end();
  if (counts && start.has_settle() && start.settle().step() == applied_step_ + 1) {
    out.Add(SettleStep{start.settle().step(), start.settle().norm(), start.settle().skip()});
    applied_step_ = start.settle().step();
    norm_ = start.settle().norm();
    not_finite_ = start.settle().skip();
    if (voted_record_) {
      reports.AddStep(*voted_record_);
    }
  }
  voted_ = false;
  voted_record_.reset();
  reports.ForgetStepsAfter(start.applied_step());
  return counts;
}

void HeldState::Adopt(MemberOutbox& out) {
  out.Add(AdoptState{staged_->generation});
  generation_ = staged_->generation;
  applied_step_ = staged_->step;
  staged_.reset();
  // Steps that are run again make snapshots of them obsolete.
  std::erase_if(replicas_, [&](const wire::Halted::Replicas& snapshot) {
    return snapshot.step() > applied_step_;
  });
}

void HeldState::Describe(wire::Hello& message) const {
  message.set_generation(generation_);
  message.set_applied_step(applied_step_);
  message.set_staged_generation(staged_ ? staged_->generation : 0);
}

void HeldState::Describe(wire::Heartbeat& message) const {
  message.set_generation(generation_);
  message.set_applied_step(applied_step_);
}

void HeldState::Describe(wire::Halted& message) const {
  message.set_held_generation(generation_);
  message.set_applied_step(applied_step_);
  message.set_norm_step(applied_step_);
  message.set_norm(norm_);
  message.set_not_finite(not_finite_);
  message.set_voted(voted_);
  if (voted_record_) {
    message.set_norm_step(voted_record_->step());
    message.set_norm(voted_record_->gradient_norm());
    message.set_not_finite(voted_record_->not_finite());
    *message.add_records() = *voted_record_;
  }
  if (staged_) {
    message.set_staged_generation(staged_->generation);
    message.set_staged_step(staged_->step);
  }
  for (const wire::Halted::Replicas& snapshot : replicas_) {
    *message.add_replicas() = snapshot;
  }
}

}  // namespace heddle::elastic
