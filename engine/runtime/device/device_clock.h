/// \file
/// The time of one emulated device. A worker of emulated speed s computes at s times its core's
/// rate: an instruction ends no earlier than when such a device would end it. The device's own time
/// advances by measured CPU time / s from the moment its input was there, so that waiting for a
/// neighbour is not caught up, and a moment's contention on the host is.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace heddle::runtime {

/// Thread: SetSpeed, speed, works and Add from any; the rest from the thread that computes.
class DeviceClock {
 public:
  /// `speed` in (0, 1): emulated; 1: the device is what it is.
  explicit DeviceClock(double speed) : speed_(speed) {}

  void SetSpeed(double speed) { speed_.store(speed); }
  double speed() const { return speed_.load(); }
  /// Works that have ended.
  int64_t works() const { return works_.load(); }

  /// The device has nothing to do before `ready` (a message's arrival, a step's start).
  void WaitFor(Time ready);
  /// Work begins now.
  void Begin();
  /// Work ended: waits until the emulated device would have ended, and returns its duration there.
  Duration End();
  /// A work has ended on a device that does not compute on the caller's thread.
  void Add(Duration duration);
  /// Sum of durations since the last call.
  Duration TakeBusy();

 private:
  std::atomic<double> speed_;
  std::atomic<int64_t> works_ = 0;
  Time device_time_{};
  Time begun_{};
  Duration begun_cpu_{};
  Duration busy_{};
  std::atomic<Duration::rep> added_ = 0;
};

}  // namespace heddle::runtime
