/// \file
/// Decides which thread drives a channel: the event loop, which watches its connection and has a
/// timer for it, or a caller's thread that waits for a message (driver.h). After a caller's thread
/// has driven the channel, it holds a lease on it for a moment.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "comm/stream/event_loop.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Callbacks of the loop, on its thread, with no lock held.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual void HandleReady(int fd, uint32_t events) = 0;
  virtual void HandleTimer(Time time) = 0;
};

/// The watches, timer and lease of a channel. Thread: guarded by its channel's lock.
class LoopWatch {
 public:
  /// `first`: the argument of EventLoop::Add.
  LoopWatch(std::shared_ptr<EventLoop> loop, bool first) : loop_(std::move(loop)), first_(first) {}

  /// Starts calling `watched`, as long as it lives.
  void Start(std::weak_ptr<Watched> watched);
  bool started() const { return started_; }
  EventLoop& loop() { return *loop_; }

  /// Has HandleTimer called at `time`, unless an earlier timer is armed.
  void RunAt(Time time);
  /// Whether the timer of `time` is the armed one, which is then disarmed. Other timers are
  /// outdated.
  bool TakeTimer(Time time);

  /// Watches for what is wanted now, and for nothing else. Must not be called before Start.
  void Rearm(Connection& connection, bool want_read, bool want_write);
  /// Ends the watches. Must be called before a descriptor is closed, because its number may be
  /// reused at once.
  void Unwatch();

  /// A caller's thread begins to drive the channel. Returns whether the loop drove it before.
  bool BeginDrive();
  /// The caller's thread stops driving. With a `lease` it is expected back at once, and the loop
  /// leaves the channel alone until the lease ends.
  void EndDrive(bool lease);
  bool driven() const { return driven_; }
  /// Whether a caller's thread drives the channel or holds a lease on it.
  bool HeldByCaller() const { return driven_ || leased_until_ != Time(); }
  /// Ends a lease that has run out.
  void EndLeaseIfOver();
  void EndLease() { leased_until_ = Time(); }
  Time leased_until() const { return leased_until_; }

 private:
  struct Registered {
    uint64_t watch = 0;
    int fd = -1;
    uint32_t events = 0;
  };

  const std::shared_ptr<EventLoop> loop_;
  const bool first_;
  std::weak_ptr<Watched> watched_;
  bool started_ = false;
  std::array<Registered, 2> watches_;
  Time run_at_ = Time::max();  ///< Time of the armed timer.
  bool driven_ = false;        ///< A caller's thread drives the channel.
  Time leased_until_;          ///< End of a caller's lease; Time(): no lease.
};

}  // namespace heddle::comm
