/// \file
/// What a worker is measured by: a node of each kind that a plan may have it run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/graph/sharding/layout.h"

namespace heddle::program {

/// Graphs that a worker may run, and one node of each signature in them.
struct ProfiledWork {
  struct Part {
    std::string signature;  ///< graph::NodeSignature of the node.
    size_t graph = 0;       ///< Index into graphs.
    graph::NodeId node = -1;
  };

  std::vector<graph::Graph> graphs;  ///< The whole graph, then those of members of groups.
  std::vector<Part> parts;           ///< In the order in which they first occur.

  const graph::Graph& GraphOf(const Part& part) const { return graphs[part.graph]; }
  const graph::Node& NodeOf(const Part& part) const { return GraphOf(part).node(part.node); }
};

/// The work of a job: the nodes of the whole graph, which say how fast each worker is, and those of
/// the members of groups with `layouts`. WorkerProfile::Seconds derives the times of other shares.
/// Errors: those of graph::Complete. Pure.
Result<ProfiledWork> WorkOf(const graph::Graph& graph,
                            const std::vector<graph::Layout>& layouts = {});

}  // namespace heddle::program
