/// \file
/// What a planner would choose that takes all workers for alike.
#pragma once

#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Every grid of equal pipelines × stages that fits the workers' memory, all workers in rank order:
/// with recomputation everywhere where it does not fit without.
std::vector<program::Plan> UniformGrids(const Problem& problem);

}  // namespace heddle::planner
