/// \file
/// Queries on stages and segments for lowering, verification and state layout.
#pragma once

#include <vector>

#include "engine/program/plan.h"

namespace heddle::program {

/// The index of the stage that holds `segment`; -1: none. Cost: logarithmic.
int StageOf(const Pipeline& pipeline, int segment);

/// The indices of the stages that hold one of these segments, which ascend.
std::vector<int> StagesOf(const Pipeline& pipeline, const std::vector<int>& segments);

/// For each parameter, the segments in which a node reads it or computes a gradient of it,
/// ascending. A worker that holds one of them holds the parameter. A parameter that no node uses
/// has none.
std::vector<std::vector<int>> ParameterSegments(const graph::Graph& graph);

/// The position of a worker in a plan; `pipeline` is -1 for an idle worker.
struct Position {
  int pipeline = -1;
  int stage = -1;
  int member = 0;  ///< Its position in the stage's group.
};
Position PositionOf(const Plan& plan, int rank);

}  // namespace heddle::program
