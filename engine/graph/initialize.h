/// \file
/// Initial weights as a function of logical coordinates: (seed, parameter name, element), so that
/// every worker computes the same bits for a box.
#pragma once

#include <cstdint>
#include <span>

#include "engine/graph/graph.h"

namespace heddle::graph {

/// Writes the initial values of `box` of `parameter` into `out`, row-major; `out` has the box's
/// size. Normal values are drawn by Box-Muller from Philox blocks.
void InitializeParameter(const Parameter& parameter,
                         uint64_t seed,
                         const Box& box,
                         std::span<float> out);

}  // namespace heddle::graph
