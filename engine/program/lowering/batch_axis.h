/// \file
/// Determines from the operators' sharding rules which tensors are summed over microbatches and
/// workers. On the microbatch axis, tokens and targets are Shard(0) and parameters Replicate; each
/// node uses the rule that matches its inputs. Exactly the tensors that are then Partial are
/// summed.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/graph/operator.h"

namespace heddle::program {

/// The placement of every tensor on the microbatch axis.
/// Errors: kInvalidArgument (no rule of a node matches its inputs, or a rule has the wrong arity).
Result<std::vector<graph::Placement>> PropagateBatchAxis(const graph::Graph& graph);

/// One use of a parameter: its weight gradient for one microbatch, and the segment that computes
/// it.
struct GradientUse {
  int use = 0;
  graph::TensorId tensor = -1;
  int segment = 0;
};

/// The properties of a graph that lowering needs, computed once.
struct GraphAnalysis {
  std::vector<std::vector<graph::NodeId>> readers = {};                  ///< By tensor, ascending.
  std::vector<std::vector<graph::NodeId>> segment_nodes = {};            ///< By segment, ascending.
  std::vector<std::vector<graph::ParameterId>> segment_parameters = {};  ///< By segment, ascending.
  std::vector<std::vector<int>> parameter_segments = {};  ///< By parameter, ascending.
  std::vector<std::vector<GradientUse>> uses = {};  ///< By parameter, by use; they are summed.
  bool differentiated = false;                      ///< Whether the graph has gradients.
};

/// Analyses a graph. Errors: kInvalidArgument (the graph is malformed, a weight gradient or the
/// loss is not Partial, or only some parameters have gradients).
Result<GraphAnalysis> Analyze(const graph::Graph& graph);

}  // namespace heddle::program
