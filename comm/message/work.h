/// \file
/// The shared state of a Work: an operation that ends exactly once.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// The shared state of an operation. Thread: any.
class Work::State {
 public:
  explicit State(Duration timeout) : timeout_(timeout) {}
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool Done() const { return done_.load(std::memory_order_acquire); }
  Duration timeout() const { return timeout_; }

  /// Ends the operation with `status`. Calls after the first have no effect.
  void Complete(const Status& status) HEDDLE_EXCLUDES(mutex_);
  /// Blocks until the operation has ended and returns its status; cancels it at the deadline.
  Status Wait(Deadline deadline, Patience patience = Patience::kSpin) HEDDLE_EXCLUDES(mutex_);
  /// Blocks until the operation has ended or `time` has come. Returns whether it has ended.
  bool WaitUntil(Time time) HEDDLE_EXCLUDES(mutex_);
  /// Blocks like WaitUntil, but does not call Drive, and returns at `nudged_from` already if Nudge
  /// was called.
  bool WaitNudged(Time time, Time nudged_from) HEDDLE_EXCLUDES(mutex_);
  /// Shortens the current WaitNudged, or else the next one.
  void Nudge() HEDDLE_EXCLUDES(mutex_);
  Time finished_at() const HEDDLE_EXCLUDES(mutex_);

  /// Stops the operation and ends it with `status`; its buffer is not accessed afterwards. No
  /// effect once done.
  virtual void Cancel(const Status& status) { Complete(status); }
  /// Called by a wait before it sleeps, so that the waiting thread can drive the operation itself.
  virtual void Drive(Deadline /*deadline*/, Patience /*patience*/) {}
  /// Called by a wait before (true) and after (false) it sleeps until another thread ends it.
  virtual void SetAsleep(bool /*asleep*/) {}
  /// A description for errors: "receiving 4096 bytes from worker-2, tag 7".
  virtual std::string Describe() const { return "operation"; }

 private:
  /// Drives, then sleeps, until the operation is done or `time`.
  void DriveAndSleep(Time time, Patience patience) HEDDLE_EXCLUDES(mutex_);
  /// Sleeps until the operation is done or `time`, or until `nudged_from` if it is nudged.
  void Sleep(Time time, Time nudged_from) HEDDLE_EXCLUDES(mutex_);

  const Duration timeout_;
  std::atomic<bool> done_ = false;
  mutable Mutex mutex_;
  CondVar ended_;
  Status status_ HEDDLE_GUARDED_BY(mutex_);
  Time finished_at_ HEDDLE_GUARDED_BY(mutex_);
  bool nudged_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::comm
