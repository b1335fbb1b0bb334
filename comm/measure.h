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
  /// Messages grow by four until one takes so long, or has so many bytes.
  Duration long_enough = std::chrono::milliseconds(25);
  int64_t most_bytes = int64_t{32} << 20;
};

/// Contract: Endpoint::MeasureLink. Both ends of the pair call it, with the same budget. Takes
/// about 100 ms by default.
Result<Link> MeasurePair(Communicator& group,
                         int peer,
                         uint64_t tag,
                         Deadline deadline,
                         const MeasureBudget& budget = {});

}  // namespace heddle::comm
