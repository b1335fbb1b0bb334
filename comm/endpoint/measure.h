/// \file
/// Measures the latency and bandwidth of a link by messages.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// The limits of a measurement, for each direction.
struct MeasureBudget {
  int round_trips = 33;                              ///< The most round trips for the latency.
  Duration latency = std::chrono::milliseconds(15);  ///< No round trip begins after this time.
  /// The measurement of bandwidth ends with the first message that takes this long beyond the
  /// link's latency.
  Duration long_enough = std::chrono::milliseconds(25);
  int64_t most_bytes = int64_t{32} << 20;  ///< Size of the largest message.
  /// No message begins after this time. The rate of a link with a long latency is then only a lower
  /// bound.
  Duration bandwidth = std::chrono::milliseconds(250);
};

/// A message that was sent and acknowledged.
struct TimedMessage {
  int64_t bytes = 0;
  Duration took = Duration(0);
  double latency_seconds = 0;  ///< One-way latency of the link.
};

/// Bytes per second after subtracting the link's latency for both ways. At most half of the
/// message's time is subtracted, because the latency was measured at another time. Pure.
double RateOf(const TimedMessage& message);
/// The size of the next message of a measurement; 0: `message` is the last. The next is four times
/// as large, or sixteen times while nearly all of the time is latency. `spent`: time since the
/// first message began. Pure.
int64_t NextMeasureBytes(const TimedMessage& message, Duration spent, const MeasureBudget& budget);

/// Implements Endpoint::MeasureLink. Both ends of the pair call it, with the same budget. Takes
/// about 100 ms with the default budget.
Result<Link> MeasurePair(Communicator& group,
                         int peer,
                         uint64_t tag,
                         Deadline deadline,
                         const MeasureBudget& budget = {});

}  // namespace heddle::comm
