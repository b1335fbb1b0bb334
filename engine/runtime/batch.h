/// \file
/// The source of a Program's tokens. The dataset decides the order of the samples; the job numbers
/// them by step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"

namespace heddle::runtime {

/// Reads sample number `sample` of the order into `tokens` and `targets`, one sequence each. An
/// error ends the step. Thread: that of Executor::ComputeGradients.
using SampleReader =
    std::function<Status(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets)>;

}  // namespace heddle::runtime
