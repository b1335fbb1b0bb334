/// \file
/// Candidates for tiny problems: all plans.
#pragma once

#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Returns all plans that fit in memory: every sequence of pipelines of distinct workers in every
/// order, with every cut and every share, and with recomputation only where memory requires it.
/// The result is empty if there are more than `limit` plans or the problem is not tiny. In tiny
/// problems gradients and messages matter as much as computing, and the table of pipelines has them
/// only on average.
std::vector<program::Plan> EveryPlan(const Problem& problem, size_t limit);

}  // namespace heddle::planner
