/// \file
/// Measuring a link by its own messages.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// What a measurement may cost, each way.
struct MeasureBudget {
  int round_trips = 33;                              ///< At most, and …
  Duration latency = std::chrono::milliseconds(15);  ///< … none begun after so long.
  /// Messages grow until one takes so long beyond the link's latency, or has so many bytes …
  Duration long_enough = std::chrono::milliseconds(25);
  int64_t most_bytes = int64_t{32} << 20;
  /// … and none is begun after so long: a far link's rate is then only known to be no lower.
  Duration bandwidth = std::chrono::milliseconds(250);
};

/// A message that was sent and answered.
struct TimedMessage {
  int64_t bytes = 0;
  Duration took = Duration(0);
  double latency_seconds = 0;  ///< Of the link, one way.
};

/// Bytes a second without the link's latency, of which no more is believed than leaves the message
/// half its time: it was measured at another time. Pure.
double RateOf(const TimedMessage& message);
/// The size of the message to follow this one; 0: this one tells the rate. `spent`: since the first
/// one was begun. Four times as large, or sixteen times while nearly all of the time is latency.
/// Pure.
int64_t NextMeasureBytes(const TimedMessage& message, Duration spent, const MeasureBudget& budget);

/// Contract: Endpoint::MeasureLink. Both ends of the pair call it, with the same budget. Takes
/// about 100 ms by default.
Result<Link> MeasurePair(Communicator& group,
                         int peer,
                         uint64_t tag,
                         Deadline deadline,
                         const MeasureBudget& budget = {});

}  // namespace heddle::comm
