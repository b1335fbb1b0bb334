/// \file
/// Reproducible sums of workers on one host: in the memory that they share, and by messages.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// Seconds of each call on this worker.
struct ExactSumTimes {
  std::vector<double> shared;
  std::vector<double> messages;
};

/// All members call it, on one host, with options of the same job. Each brings `values` vectors of
/// `bytes` bytes; a call in shared memory and one by messages follow each other `repetitions`
/// times, after one of each that nobody counts, whose answers are compared, bit for bit, with the
/// sum by its definition. Tags from `tag` on are its own. Errors: kDataLoss (a wrong answer).
Result<ExactSumTimes> MeasureExactSums(const EndpointOptions& options,
                                       Communicator& group,
                                       int64_t bytes,
                                       int values,
                                       int repetitions,
                                       uint64_t tag);

}  // namespace heddle::comm
