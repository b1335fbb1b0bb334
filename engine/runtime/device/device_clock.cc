#include "engine/runtime/device/device_clock.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace heddle::runtime {

void DeviceClock::WaitFor(Time ready) {
  device_time_ = std::max(device_time_, ready);
}

void DeviceClock::Begin() {
  begun_ = Now();
  begun_cpu_ = ThreadCpuTime();
}

Duration DeviceClock::End() {
  works_.fetch_add(1);
  const double speed = speed_.load();
  if (speed >= 1) {
    const Time now = Now();
    device_time_ = now;
    busy_ += now - begun_;
    return now - begun_;
  }
  const Duration cpu = ThreadCpuTime() - begun_cpu_;
  const Duration duration = FromSeconds(Seconds(cpu) / speed);
  device_time_ += duration;
  busy_ += duration;
  // lint: allow sleep: the emulated device is still busy; that is what is emulated.
  std::this_thread::sleep_until(device_time_);
  return duration;
}

void DeviceClock::Add(Duration duration) {
  added_.fetch_add(duration.count());
  works_.fetch_add(1);
}

Duration DeviceClock::TakeBusy() {
  return std::exchange(busy_, Duration{}) + Duration(added_.exchange(0));
}

}  // namespace heddle::runtime
