/// \file
/// Exact memory of a Program: state plus live values over its instructions.
#pragma once

#include <cstdint>

#include "engine/program/program.h"

namespace heddle::program {

/// Bytes of what stays: master, two moments and the compute copy of each held parameter.
int64_t StateBytes(const graph::Graph& graph, const Program& program);

/// Largest sum of live slots' bytes over the step (receives count from their instruction on).
int64_t PeakSlotBytes(const Program& program);

}  // namespace heddle::program
