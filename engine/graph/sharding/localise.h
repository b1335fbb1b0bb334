/// \file
/// From a sharded graph to the graph of one member.
#pragma once

#include <optional>
#include <vector>

#include "engine/graph/sharding/sharded_graph.h"

namespace heddle::graph {

/// What one member of a group runs: local types and attributes, under the ids of the sharded graph.
struct LocalGraph {
  /// Types are those of what the member has, with an extent of 0 where it has nothing. Parameters
  /// keep their logical shapes: initial values and state are functions of logical coordinates.
  Graph graph;
  std::vector<std::optional<Box>> boxes;  ///< By tensor: its part of the logical one, if any.
  std::vector<Exchange> exchanges;        ///< Those of all members.
  std::vector<Step> order;                ///< All exchanges, and the nodes with a share here.
};

/// The graph of the member at `position`. When nothing is cut it is the graph itself.
LocalGraph Localise(const ShardedGraph& sharded, int position);

}  // namespace heddle::graph
