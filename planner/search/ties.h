/// \file
/// Chooses among plans that are about equally fast.
#pragma once

#include <vector>

#include "engine/graph/graph.h"
#include "planner/search/improve.h"

namespace heddle::planner {

/// The number of messages of a step: those between stages, and one for each holder of each reduced
/// gradient.
int64_t MessagesOf(const graph::Graph& graph, const program::Plan& plan);

/// The index of the preferred plan. Of the plans that take at most the fraction `tie` longer than
/// the fastest, and at most `bound` seconds, it is the one with the fewest messages; then
/// `in_force`, which may be null; then the first in an order that does not depend on seconds. The
/// fastest plan always qualifies. Precondition: at least one plan.
size_t Preferred(const graph::Graph& graph,
                 const std::vector<ScoredPlan>& plans,
                 double tie,
                 double bound,
                 const program::Plan* in_force);

}  // namespace heddle::planner
