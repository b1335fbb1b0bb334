/// \file
/// Symbolic values for Verify, which stand for the content of slots.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/tensor/reduction_tree.h"
#include "engine/graph/graph.h"

namespace heddle::program {

/// The leaves of a parameter's gradient: microbatches m in [0, M) of each use, numbered
/// use * P + m.
struct LeafNumbering {
  int64_t microbatches = 0;  ///< Number of microbatches, M.
  int64_t stride = 1;        ///< Leaves per use, P: a power of two >= M.
  int64_t uses = 0;

  int64_t total() const { return microbatches * uses; }
  /// Number of leaves with numbers in [first, last).
  int64_t Count(int64_t first, int64_t last) const;
};

/// A range of leaf numbers, [first, last).
struct LeafRange {
  int64_t first = 0;
  int64_t last = 0;
  friend bool operator==(const LeafRange&, const LeafRange&) = default;
};

/// Sorts the ranges and joins adjacent ones. Errors: kInternal (a leaf is in two ranges).
Result<std::vector<LeafRange>> JoinRanges(std::vector<LeafRange> ranges,
                                          graph::ParameterId parameter);

/// A tensor of one microbatch, of the graph that the worker runs.
struct TensorValue {
  graph::TensorId tensor = -1;
  int microbatch = -1;
  friend bool operator==(const TensorValue&, const TensorValue&) = default;
};

/// A partial sum of the gradient of a piece of a parameter.
struct SumValue {
  graph::ParameterId parameter = -1;
  int piece = 0;
  bool copy = false;                   ///< Another member of the group counts the same.
  std::vector<LeafRange> leaves = {};  ///< Ascending, disjoint and not adjacent.
  TreeNode node = {};                  ///< Exact plan: lowest tree node that covers the leaves.

  int64_t count() const;
};

using SymbolicValue = std::variant<TensorValue, SumValue>;

/// The sum left + right. With `exact`, both must be complete halves of one tree node, left before
/// right. Errors: kInternal (other parameters, a repeated leaf, or not the order of the reduction
/// tree).
Result<SumValue> AddSums(const SumValue& left,
                         const SumValue& right,
                         const LeafNumbering& numbering,
                         bool exact);

/// Whether `sum`, with its leaves shifted by `shift`, has every leaf under `node` and no other.
bool IsWhole(const SumValue& sum, TreeNode node, const LeafNumbering& numbering, int64_t shift = 0);

}  // namespace heddle::program
