/// \file
/// What workers and coordinator agree on about measured links, whoever says it.
#pragma once

namespace heddle::elastic {

/// One measurement is of no more transports: each of them takes a generation's number of the two
/// workers' groups, and the requests of a coordinator are so many numbers apart.
inline constexpr int kMostMeasuredTransports = 8;

/// Whether these can be a link's figures, so that sums and quotients of them mean something: at
/// most an hour of latency, and between one byte and 1e15 bytes a second. Pure.
constexpr bool IsLinkSound(double latency_seconds, double bytes_per_second) {
  return latency_seconds > 0 && latency_seconds <= 3600 && bytes_per_second >= 1 &&
         bytes_per_second <= 1e15;
}

}  // namespace heddle::elastic
