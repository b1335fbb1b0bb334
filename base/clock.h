/// \file
/// Time is injected: pure code takes `Time` values, shells ask a Clock. A Deadline is absolute and
/// goes down the call chain.
#pragma once

#include <chrono>

namespace heddle {

using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using Deadline = Time;

inline Time Now() {
  return std::chrono::steady_clock::now();
}
inline Deadline After(Duration duration) {
  return Now() + duration;
}

/// Seconds as a double, for reports.
inline double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
inline Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// Wall-clock seconds since the epoch: for labels in events and files, and for what one run of a
/// program tells the next; never for other decisions.
double WallClockSeconds();

/// CPU time consumed by the calling thread, for differences. Where the kernel counts it by whole
/// ticks only (User-Mode Linux) it is the time of Now() instead.
Duration ThreadCpuTime();

}  // namespace heddle
