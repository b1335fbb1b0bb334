/// \file
/// Time is passed in: pure code takes `Time` values, and the code around it calls Now(). A Deadline
/// is absolute and is passed down the call chain.
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

/// Wall-clock seconds since the epoch. For labels in events and files, and for values that one run
/// of a program stores for the next; never for other decisions.
double WallClockSeconds();

/// CPU time consumed by the calling thread, for differences. If the kernel counts it in whole ticks
/// only (User-Mode Linux), the time of Now() instead.
Duration ThreadCpuTime();

}  // namespace heddle
