/// \file
/// Candidates for tiny problems: all plans.
#pragma once

#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Returns all plans that fit in memory: every sequence of pipelines of distinct workers in every
/// order, with every cut and every share, and with recomputation only where memory requires it.
/// Empty if there are more than `limit` or the problem is not tiny. At such sizes gradients and
/// messages matter as much as computing, and the table of pipelines has them only on average.
std::vector<program::Plan> EveryPlan(const Problem& problem, size_t limit);

}  // namespace heddle::planner
