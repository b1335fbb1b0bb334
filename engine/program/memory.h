/// \file
/// Exact memory of a Program: state plus live values over its instructions.
#pragma once

#include <cstdint>

#include "engine/program/program.h"

namespace heddle::program {

/// Bytes of what stays: master, two moments and the compute copy of each held parameter. A
/// parameter that is computed in the master's element type has no copy.
int64_t StateBytes(const graph::Graph& graph, const Program& program);

/// Largest sum of live slots' bytes over the step. Receives count from their instruction on, sends
/// until their kFree. What a reduction reads counts until kVote, because only there it is sure to
/// have ended: an upper bound, reached when the links are slower than the computation.
int64_t PeakSlotBytes(const Program& program);

}  // namespace heddle::program
