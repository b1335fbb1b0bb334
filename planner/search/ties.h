/// \file
/// Which of plans that are about equally fast is taken.
#pragma once

#include <vector>

#include "engine/graph/graph.h"
#include "planner/search/improve.h"

namespace heddle::planner {

/// Messages of a step: what stages send each other, and what the holders of each reduced gradient
/// take part in.
int64_t MessagesOf(const graph::Graph& graph, const program::Plan& plan);

/// Position of the plan to take: among those whose seconds are at most the part `tie` above the
/// fewest and at most `bound`, the one with the fewest messages; then `in_force`, which may be
/// null; then the first in an order of plans that seconds do not enter. Precondition: at least one
/// plan.
size_t Preferred(const graph::Graph& graph,
                 const std::vector<ScoredPlan>& plans,
                 double tie,
                 double bound,
                 const program::Plan* in_force);

}  // namespace heddle::planner
