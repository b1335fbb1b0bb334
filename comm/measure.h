/// \file
/// Measuring a link by its own messages.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// Contract: Endpoint::MeasureLink. Both ends of the pair call it. Takes about 100 ms.
Result<Link> MeasurePair(Communicator& group, int peer, uint64_t tag, Deadline deadline);

}  // namespace heddle::comm
