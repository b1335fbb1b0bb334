/// \file
/// What a Work refers to: an operation that ends exactly once.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// Thread: any.
class Work::State {
 public:
  explicit State(Duration timeout) : timeout_(timeout) {}
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool Done() const { return done_.load(std::memory_order_acquire); }
  Duration timeout() const { return timeout_; }

  /// Ends the operation; the first call wins.
  void Complete(const Status& status) HEDDLE_EXCLUDES(mutex_);
  /// Blocks until it ended; at the deadline ends it itself by Cancel.
  Status Wait(Deadline deadline, Patience patience = Patience::kSpin) HEDDLE_EXCLUDES(mutex_);
  /// Blocks until it ended or `time` has come, and changes nothing; whether it ended.
  bool WaitUntil(Time time) HEDDLE_EXCLUDES(mutex_);
  /// The same for a wait that has lasted: it does no work itself any more, and a nudge ends it
  /// earlier, but not before `nudged_from`.
  bool WaitNudged(Time time, Time nudged_from) HEDDLE_EXCLUDES(mutex_);
  /// There is news for whoever waits: ends a WaitNudged of this moment, or else the next.
  void Nudge() HEDDLE_EXCLUDES(mutex_);
  Time finished_at() const HEDDLE_EXCLUDES(mutex_);

  /// Takes the operation away from whoever works on it and ends it with `status`; afterwards nobody
  /// touches its buffer. No effect once done.
  virtual void Cancel(const Status& status) { Complete(status); }
  /// Called by a wait before it sleeps: whoever waits may do the work itself for a while.
  virtual void Drive(Deadline /*deadline*/, Patience /*patience*/) {}
  /// A wait that Drive did not end sleeps until someone else ends it; or does so no longer.
  virtual void SetAsleep(bool /*asleep*/) {}
  /// "receiving 4096 bytes from worker-2, tag 7".
  virtual std::string Describe() const { return "operation"; }

 private:
  /// Until it is done, or `time`.
  void DriveAndSleep(Time time, Patience patience) HEDDLE_EXCLUDES(mutex_);
  /// The same, or nudged and `nudged_from`.
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
