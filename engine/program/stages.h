/// \file
/// Questions about stages and segments that lowering, verification and state layout share.
#pragma once

#include <vector>

#include "engine/program/plan.h"

namespace heddle::program {

/// Position of the stage that holds `segment`, or -1. Cost: logarithmic.
int StageOf(const Pipeline& pipeline, int segment);

/// segments[p]: the segments in which a node reads parameter p or computes a gradient of it,
/// ascending. Whoever holds one of them holds the parameter. A parameter that no node uses has
/// none.
std::vector<std::vector<int>> ParameterSegments(const graph::Graph& graph);

/// Where a worker stands in a plan; pipeline is -1 for an idle one.
struct Position {
  int pipeline = -1;
  int stage = -1;
};
Position PositionOf(const Plan& plan, int rank);

}  // namespace heddle::program
