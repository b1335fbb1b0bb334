/// \file
/// The fixed order in which numbered contributions are added, whichever workers computed them.
/// Contributions are the leaves of a binary tree over their numbers; node (level, index) covers the
/// numbers [index << level, (index + 1) << level). A node's value is left + right, or that of its
/// only non-empty child. So a sum's bits depend only on the contributions and their numbers, never
/// on which worker held which. This is the invariant behind bit-equal losses under any plan, and
/// behind comm's reproducible reduction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

struct TreeNode {
  int level = 0;
  int64_t index = 0;

  int64_t first() const { return index << level; }
  int64_t last() const { return (index + 1) << level; }
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

/// The smallest set of tree nodes that covers exactly the numbers [first, last), ascending.
std::vector<TreeNode> CoverRange(int64_t first, int64_t last);

/// One addition: values[left] += values[right]; `right` is not used afterwards; left < right.
struct Fold {
  int left = 0;
  int right = 0;
  friend bool operator==(const Fold&, const Fold&) = default;
};

/// The additions that reduce `nodes` (ascending, disjoint) to one value in tree order; the result
/// is in values[0]. Empty for one node. The order is that of a depth-first walk, so that a node is
/// folded as soon as both halves exist.
std::vector<Fold> FoldOrder(std::span<const TreeNode> nodes);

}  // namespace heddle
