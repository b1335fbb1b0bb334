/// \file
/// Computation beside communication: what each costs the other.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// All members call it; two of them at least, each with all of its threads on one processor that is
/// not the first. Rank 0 also multiplies matrices, on the first processor. Sums `bytes`
/// `repetitions` times in each part. At rank 0: products a second alone, beside plain copies of
/// memory and beside the sums, seconds of a sum alone and beside the products, seconds of half a
/// round trip of an urgent message of 8 KiB to rank 1, sent now and then, when nothing else happens
/// and while a sum is under way. Tags from `tag` on are its own.
Result<std::vector<double>> MeasureOverlap(Communicator& group,
                                           int64_t bytes,
                                           int repetitions,
                                           uint64_t tag);

}  // namespace heddle::comm
