#include "engine/program/verify/verify_values.h"

#include <algorithm>

namespace heddle::program {

namespace {

TreeNode Parent(TreeNode node) {
  return {.level = node.level + 1, .index = node.index >> 1};
}

}  // namespace

Result<std::vector<LeafRange>> JoinRanges(std::vector<LeafRange> ranges,
                                          graph::ParameterId parameter) {
  std::sort(ranges.begin(), ranges.end(),
            [](const LeafRange& a, const LeafRange& b) { return a.first < b.first; });
  size_t joined = 0;
  for (size_t i = 1; i < ranges.size(); ++i) {
    const LeafRange range = ranges[i];
    if (range.first < ranges[joined].last) {
      return InternalError("contribution {} to parameter {} is added twice", range.first,
                           parameter);
    }
    if (range.first == ranges[joined].last) {
      ranges[joined].last = range.last;
    } else {
      ranges[++joined] = range;
    }
  }
  ranges.resize(std::min(ranges.size(), joined + 1));
  return ranges;
}

int64_t LeafNumbering::Count(int64_t first, int64_t last) const {
  int64_t count = 0;
  for (int64_t use = 0; use < uses; ++use) {
    const int64_t low = std::max(first, use * stride);
    const int64_t high = std::min(last, use * stride + microbatches);
    count += std::max<int64_t>(0, high - low);
  }
  return count;
}

int64_t SumValue::count() const {
  int64_t sum = 0;
  for (const LeafRange& range : leaves) {
    sum += range.last - range.first;
  }
  return sum;
}

bool IsWhole(const SumValue& sum, TreeNode node, const LeafNumbering& numbering, int64_t shift) {
  return !sum.leaves.empty() && sum.leaves.front().first + shift >= node.first() &&
         sum.leaves.back().last + shift <= node.last() &&
         sum.count() == numbering.Count(node.first(), node.last());
}

Result<SumValue> AddSums(const SumValue& left,
                         const SumValue& right,
                         const LeafNumbering& numbering,
                         bool exact) {
  if (left.parameter != right.parameter) {
    return InternalError("adds gradients of parameters {} and {}", left.parameter, right.parameter);
  }
  if (left.piece != right.piece || left.copy || right.copy) {
    return InternalError(
        "adds {} of parameter {}",
        left.copy || right.copy ? "a copy that another member counts" : "gradients of two pieces",
        left.parameter);
  }
  SumValue sum{.parameter = left.parameter, .piece = left.piece, .leaves = left.leaves};
  sum.leaves.insert(sum.leaves.end(), right.leaves.begin(), right.leaves.end());
  HEDDLE_ASSIGN_OR_RETURN(sum.leaves, JoinRanges(std::move(sum.leaves), left.parameter));
  if (!exact) {
    return sum;
  }
  // Walk both up to the children of their lowest common ancestor.
  TreeNode a = left.node;
  TreeNode b = right.node;
  while (a.level < b.level) {
    a = Parent(a);
  }
  while (b.level < a.level) {
    b = Parent(b);
  }
  while (a != b && Parent(a) != Parent(b)) {
    a = Parent(a);
    b = Parent(b);
  }
  if (a == b || a.index > b.index || !IsWhole(left, a, numbering) ||
      !IsWhole(right, b, numbering)) {
    return InternalError("adds {}:{} and {}:{} of parameter {} out of tree order", left.node.level,
                         left.node.index, right.node.level, right.node.index, left.parameter);
  }
  sum.node = Parent(a);
  return sum;
}

}  // namespace heddle::program
