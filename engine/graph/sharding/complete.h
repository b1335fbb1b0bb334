/// \file
/// From a graph and a layout to a sharded graph: the placement of every tensor, the rule of every
/// node, and the exchanges that these need.
#pragma once

#include <map>

#include "engine/graph/sharding/sharded_graph.h"

namespace heddle::graph {

/// The sharded graph. Nodes are placed in their order, each by the rule that uses parameters as
/// they are placed; of those by the one that exchanges the fewest bytes, then that gives the most
/// loaded member the least work, then the first. A tensor is exchanged where a reader needs it
/// otherwise than it is, once for all readers that need it so. Weight gradients stay as they come
/// out: their reduction adds partial ones. Where an operator's parts exchange less than the
/// operator, they replace it. Deterministic. Errors: those of ValidateLayout.
///
/// `edges`: tensors that others than the members compute or read, by what each member sends or
/// receives of them. Members read them from that: as the layout places them, otherwise whole.
Result<ShardedGraph> Complete(const Graph& graph,
                              const Layout& layout,
                              const std::map<TensorId, Sharding>& edges = {});

}  // namespace heddle::graph
