/// \file
/// Layouts of graphs for tests: that of Megatron-LM's tensor parallelism for the product's models,
/// and random ones for any graph.
#pragma once

#include <vector>

#include "base/random.h"
#include "engine/graph/models/model.h"
#include "engine/graph/sharding/layout.h"

namespace heddle::testing {

struct TensorParallel {
  std::vector<int> units;   ///< Shares of attention and MLP, by position.
  bool vocabulary = false;  ///< Embedding and head are cut by rows, with the same shares.
  /// Query heads are cut also within the groups that read one key/value head.
  bool within_groups = false;
  bool sequence = false;  ///< The residual stream is cut by positions.
};

/// Query, key, value, gate and up by output features; attention's output and down by input
/// features.
graph::Layout LayoutOf(const graph::Graph& graph,
                       const graph::ModelConfig& config,
                       const TensorParallel& parallel);

/// Any valid layout of a graph of RandomGraph or of a model: one to eight members, one or two cuts,
/// some shares empty, every linear layer, table and vector whole or cut either way, attention
/// mostly by heads. Rarely exact.
graph::Layout RandomLayout(const graph::Graph& graph, Random& random);

}  // namespace heddle::testing
