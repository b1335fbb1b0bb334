/// \file
/// Tiny problems: every plan there is.
#pragma once

#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Every sequence of pipelines of distinct workers in every order, with every cut and every share
/// (recomputation only where memory demands it), as far as memory allows; empty when there are more
/// than `limit`. At the sizes where that is possible, gradients and messages decide as much as
/// computing, which the table of pipelines knows only on average.
std::vector<program::Plan> EveryPlan(const Problem& problem, size_t limit);

}  // namespace heddle::planner
