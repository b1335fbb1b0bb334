/// \file
/// Uniform grids: the plans of a planner that takes all workers for equal.
#pragma once

#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Returns every grid of equal pipelines × stages that fits in the workers' memory, with all
/// workers in rank order. A grid that does not fit otherwise has recomputation in all stages.
std::vector<program::Plan> UniformGrids(const Problem& problem);

}  // namespace heddle::planner
