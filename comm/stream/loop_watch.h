/// \file
/// Who moves a channel's bytes: the event loop, which watches its connection and has a timer for
/// it, or a caller's thread that waits for a message (driver.h), meanwhile and for a moment after.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "comm/stream/event_loop.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Whom the loop calls. On its thread, no lock held.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual void HandleReady(int fd, uint32_t events) = 0;
  virtual void HandleTimer(Time time) = 0;
};

/// Thread: its channel's lock.
class LoopWatch {
 public:
  /// `first`: EventLoop::Add's.
  LoopWatch(std::shared_ptr<EventLoop> loop, bool first) : loop_(std::move(loop)), first_(first) {}

  /// From now on `watched` is called, as long as it lives.
  void Start(std::weak_ptr<Watched> watched);
  bool started() const { return started_; }
  EventLoop& loop() { return *loop_; }

  /// HandleTimer is called at `time`, or earlier if an earlier time was asked for.
  void RunAt(Time time);
  /// Whether the timer of `time` is the one that was asked for last; others have nothing to do.
  bool TakeTimer(Time time);

  /// Brings what epoll watches in line with what can be used now. Not before Start.
  void Rearm(Connection& connection, bool want_read, bool want_write);
  /// Before a descriptor is closed: its number may be another's at once.
  void Unwatch();

  /// A caller's thread moves the channel from now on. Whether the loop moved it before.
  bool BeginDrive();
  /// It goes. `lease`: it is expected back at once, and the loop leaves the channel alone until
  /// then.
  void EndDrive(bool lease);
  bool driven() const { return driven_; }
  /// Whether a caller's thread has the channel, or will be back at once.
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
  Time run_at_ = Time::max();  ///< Earliest timer armed.
  bool driven_ = false;        ///< A caller's thread moves the messages,
  Time leased_until_;          ///< or has just done so; Time(): no.
};

}  // namespace heddle::comm
