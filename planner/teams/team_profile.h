/// \file
/// A team's costs as those of one worker that runs the whole of each layer.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/sharding/layout.h"
#include "planner/predictor/cluster.h"
#include "planner/teams/teams.h"

namespace heddle::planner {

/// The name of a team whose members have these names.
std::string TeamName(const std::vector<std::string>& names);

/// The profile of a team whose members lay the graph out as `layout` says. The seconds of a node are
/// such that those of all nodes of a segment and phase add up to what the most loaded member takes
/// for them and for its exchanges. Memory is that of a worker with the whole of each layer that is
/// full when the first of the members is, by their state. Precondition: the layout is valid for the
/// graph.
program::WorkerProfile TeamProfile(const graph::Graph& graph,
                                   const ClusterProfile& cluster,
                                   const Team& team,
                                   const graph::Layout& layout);

}  // namespace heddle::planner
