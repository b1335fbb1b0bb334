/// \file
/// Static check of what the members of a group run together, whoever made it: each node by one rule
/// of its operator for all members' shares, each exchange from what members have to what they get,
/// and every weight gradient counted once.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/program/stage_graph.h"

namespace heddle::program {

/// Checks the nodes and exchanges of a stage, and its contributions to gradients. `graph` is the
/// job's. Errors: kInternal naming the node, the exchange or the parameter.
Status VerifyStageGraph(const graph::Graph& graph, const Stage& stage, const StageGraph& group);

/// Checks that an exchange makes what its result is said to be from what its source is said to be.
/// Errors: kInternal naming both.
Status VerifyExchange(const graph::ShardedGraph& sharded, const graph::Exchange& exchange);

}  // namespace heddle::program
