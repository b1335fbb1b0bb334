/// \file
/// The layout of tensor parallelism (Shoeybi et al., "Megatron-LM", 2019) for any graph of the
/// product's operators: each half of a layer needs one sum, forwards and backwards.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/graph/sharding/layout.h"

namespace heddle::graph {

/// The layout in which the members share each layer in proportion to `units`, by position: the
/// linear layers before attention or an element-wise activation by output features, those after it
/// by input features, embedding and head by rows of the vocabulary. Attention is cut between the
/// groups of query heads that read one key/value head if every share is whole groups, otherwise
/// between query heads, and members may then share a key/value head. With `divides_sequence` the
/// residual stream, and all that is computed position by position between two sums, is cut by
/// positions (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
/// 2022): sums become scatters, and what linear layers read is gathered. Everything else is whole.
/// Errors: kInvalidArgument: no units, a negative share, or a share of some, but too few for a head.
Result<Layout> TensorParallel(const Graph& graph,
                              const std::vector<int>& units,
                              bool divides_sequence = false);

/// The heads of an attention.
struct Heads {
  int64_t query = 0;
  int64_t key_value = 0;
};

/// The fewest heads of an attention in the graph, which bound the members of a group and how finely
/// their shares differ; nothing: there is none.
std::optional<Heads> FewestHeads(const Graph& graph);

}  // namespace heddle::graph
