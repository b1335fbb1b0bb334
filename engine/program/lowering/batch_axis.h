/// \file
/// What must be summed over microbatches and workers, derived from the operators' sharding rules:
/// tokens and targets lie Shard(0) on the microbatch axis, parameters Replicate; each node takes
/// the rule that matches its inputs. What comes out Partial is summed; nothing else is.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/graph/operator.h"

namespace heddle::program {

/// Placement of every tensor on the microbatch axis.
/// Errors: kInvalidArgument when no rule of a node matches its inputs, or a rule has the wrong
/// arity.
Result<std::vector<graph::Placement>> PropagateBatchAxis(const graph::Graph& graph);

/// One use of a parameter: its weight gradient, of one microbatch, and where it arises.
struct GradientUse {
  int use = 0;
  graph::TensorId tensor = -1;
  int segment = 0;
};

/// A graph with the questions that lowering asks answered once.
struct GraphAnalysis {
  std::vector<std::vector<graph::NodeId>> readers = {};                  ///< By tensor, ascending.
  std::vector<std::vector<graph::NodeId>> segment_nodes = {};            ///< By segment, ascending.
  std::vector<std::vector<graph::ParameterId>> segment_parameters = {};  ///< By segment, ascending.
  std::vector<std::vector<int>> parameter_segments = {};  ///< By parameter, ascending.
  std::vector<std::vector<GradientUse>> uses = {};  ///< By parameter, by use; what is to be summed.
  bool differentiated = false;                      ///< Whether the graph has gradients at all.
};

/// Errors: kInvalidArgument when the graph is malformed, a weight gradient or the loss does not
/// come out Partial, or some parameters have gradients and others have none.
Result<GraphAnalysis> Analyze(const graph::Graph& graph);

}  // namespace heddle::program
