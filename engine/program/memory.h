/// \file
/// Computes the exact memory of a Program: state plus live values over its instructions.
#pragma once

#include <cstdint>

#include "engine/program/program.h"

namespace heddle::program {

/// Bytes of the state: master, two moments and the compute copy of what is held of each parameter. A
/// parameter whose compute type is the master's has no copy.
int64_t StateBytes(const graph::Graph& graph, const Program& program);

/// The largest sum of live slots' bytes during the step. Receives count from their instruction on,
/// sends and what is exchanged until their kFree. Inputs of a reduction count until kVote, because only then it has
/// certainly ended. This is an upper bound, which is reached if links are slower than the
/// computation.
int64_t PeakSlotBytes(const Program& program);

}  // namespace heddle::program
