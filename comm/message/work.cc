#include "comm/message/work.h"

#include <algorithm>

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

void Work::State::DriveAndSleep(Time time, Patience patience) {
  if (!Done()) {
    Drive(time, patience);
  }
  if (!Done()) {
    Sleep(time, time);
  }
}

void Work::State::Sleep(Time time, Time nudged_from) {
  SetAsleep(true);
  {
    const MutexLock lock(mutex_);
    while (!done_.load(std::memory_order_relaxed)) {
      const Time until = nudged_ ? std::min(time, nudged_from) : time;
      if (!ended_.WaitUntil(mutex_, until) && Now() >= until) {
        break;
      }
    }
    nudged_ = false;
  }
  SetAsleep(false);
}

Status Work::State::Wait(Deadline deadline, Patience patience) {
  DriveAndSleep(deadline, patience);
  if (!Done()) {
    Cancel(DeadlineExceededError("deadline passed while {}", Describe()));
  }
  const MutexLock lock(mutex_);
  return status_;
}

bool Work::State::WaitUntil(Time time) {
  DriveAndSleep(time, Patience::kSpin);
  return Done();
}

bool Work::State::WaitNudged(Time time, Time nudged_from) {
  Sleep(time, nudged_from);
  return Done();
}

void Work::State::Nudge() {
  const MutexLock lock(mutex_);
  nudged_ = true;
  ended_.NotifyAll();
}

Time Work::State::finished_at() const {
  const MutexLock lock(mutex_);
  HEDDLE_CHECK(done_.load(), "finished_at of an operation in flight");
  return finished_at_;
}

bool Work::Done() const {
  return state_ == nullptr || state_->Done();
}

Status Work::Wait(Deadline deadline, Patience patience) const {
  return state_ == nullptr ? Status::Ok() : state_->Wait(deadline, patience);
}

Status Work::Wait() const {
  return state_ == nullptr ? Status::Ok() : Wait(After(state_->timeout()));
}

Time Work::finished_at() const {
  return state_ == nullptr ? Time() : state_->finished_at();
}

}  // namespace heddle::comm
