/// \file
/// Initial weights as a function of logical coordinates: (seed, parameter name, element). Any
/// worker draws any box and gets the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "engine/graph/graph.h"

namespace heddle::graph {

/// Writes the initial value of `parameter`'s `box` into `out` (row-major, box's element count).
/// Normal values are drawn by Box-Muller from Philox blocks.
void InitializeParameter(const Parameter& parameter,
                         uint64_t seed,
                         const Box& box,
                         std::span<float> out);

}  // namespace heddle::graph
