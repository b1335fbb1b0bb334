/// \file
/// Where a Program's tokens come from: the sample order is data's business, the numbering is the
/// job's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"

namespace heddle::runtime {

/// Fills one sample's tokens and targets (T values each) for sample number `sample` of the order.
/// Thread: called from the executor's thread.
using SampleReader =
    std::function<Status(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets)>;

}  // namespace heddle::runtime
