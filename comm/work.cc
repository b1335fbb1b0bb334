#include "comm/work.h"

#include "base/check.h"

namespace heddle::comm {

void Work::State::Complete(const Status& status) {
  const MutexLock lock(mutex_);
  if (done_.load(std::memory_order_relaxed)) {
    return;
  }
  status_ = status;
  finished_at_ = Now();
  done_.store(true, std::memory_order_release);
  ended_.NotifyAll();
}

void Work::State::SleepUntil(Time time) {
  if (!Done()) {
    Drive(time);
  }
  if (Done()) {
    return;
  }
  SetAsleep(true);
  {
    const MutexLock lock(mutex_);
    while (!done_.load(std::memory_order_relaxed)) {
      if (!ended_.WaitUntil(mutex_, time) && Now() >= time) {
        break;
      }
    }
  }
  SetAsleep(false);
}

Status Work::State::Wait(Deadline deadline) {
  SleepUntil(deadline);
  if (!Done()) {
    Cancel(DeadlineExceededError("deadline passed while {}", Describe()));
  }
  const MutexLock lock(mutex_);
  return status_;
}

bool Work::State::WaitUntil(Time time) {
  SleepUntil(time);
  return Done();
}

Time Work::State::finished_at() const {
  const MutexLock lock(mutex_);
  HEDDLE_CHECK(done_.load(), "finished_at of an operation in flight");
  return finished_at_;
}

bool Work::Done() const {
  return state_ == nullptr || state_->Done();
}

Status Work::Wait(Deadline deadline) const {
  return state_ == nullptr ? Status::Ok() : state_->Wait(deadline);
}

Status Work::Wait() const {
  return state_ == nullptr ? Status::Ok() : state_->Wait(After(state_->timeout()));
}

Time Work::finished_at() const {
  return state_ == nullptr ? Time() : state_->finished_at();
}

}  // namespace heddle::comm
