/// \file
/// The clock of one device, which may be emulated. A worker of emulated speed s computes at s times
/// its core's rate: an instruction ends no earlier than such a device would end it. The device's
/// time advances by the measured CPU time / s from the arrival of the instruction's input. Time
/// spent waiting for a neighbour is therefore not caught up, and a moment of contention on the host
/// is.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace heddle::runtime {

/// The time and the work of a device. Thread: any for SetSpeed, speed, works and Add; the thread
/// that computes for the others.
class DeviceClock {
 public:
  /// `speed`: the emulated part of the device's speed, in (0, 1]; 1: not emulated.
  explicit DeviceClock(double speed) : speed_(speed) {}

  /// Sets the speed of work that ends from now on, in (0, 1].
  void SetSpeed(double speed) { speed_.store(speed); }
  /// Returns the emulated speed.
  double speed() const { return speed_.load(); }
  /// Returns the number of pieces of work that have ended.
  int64_t works() const { return works_.load(); }

  /// Records that the device is idle until `ready`, such as a message's arrival or a step's start.
  void WaitFor(Time ready);
  /// Records that work begins now.
  void Begin();
  /// Records that the work has ended: waits until the emulated device would have ended it, and
  /// returns its duration on that device.
  Duration End();
  /// Records work of `duration` that has ended on a device that computes outside of the calling
  /// thread.
  void Add(Duration duration);
  /// Returns the sum of the durations since the last call.
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
