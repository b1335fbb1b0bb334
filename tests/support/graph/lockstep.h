/// \file
/// Runs the local graphs of all members of a group step by step with the dense evaluator, and makes
/// their exchanges itself. Knows what a local graph and an exchange mean
/// (engine/graph/sharding), and nothing of how they were found.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/sharding/localise.h"
#include "tests/support/graph/dense_evaluator.h"

namespace heddle::testing {

/// What all members hold in the end.
struct LockstepRun {
  std::string refused;  ///< Why the run could not go on; empty: it ended.
  /// By position and tensor; nothing where the member has no part of it.
  std::vector<std::vector<std::optional<DenseTensor>>> tensors;
};

/// `inputs`: tokens, targets and parameters of the logical graph. Refused are members that disagree
/// about an exchange, a value that is read before it exists or made twice, one of another shape
/// than its type or box, and ranges of an exchange that no member has.
LockstepRun RunLockstep(const std::vector<graph::LocalGraph>& members,
                        const std::map<graph::TensorId, DenseTensor>& inputs,
                        const DenseContext& context);

/// Compares every tensor of `sharded` that `expected` (the values of the logical graph, by id) has
/// with what the members hold of it, put together as its sharding says, to 1e-9; and what an
/// exchange makes with what it is made from. Empty text: all are equal; otherwise which is not.
std::string Difference(const LockstepRun& run,
                       const graph::ShardedGraph& sharded,
                       const std::vector<graph::LocalGraph>& members,
                       const std::vector<DenseTensor>& expected);

}  // namespace heddle::testing
