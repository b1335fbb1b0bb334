#include "base/tensor/reduction_tree.h"

#include <algorithm>
#include <bit>

namespace heddle {

std::vector<TreeNode> CoverRange(int64_t first, int64_t last) {
  std::vector<TreeNode> nodes;
  while (first < last) {
    const int alignment = first == 0 ? 62 : std::countr_zero(static_cast<uint64_t>(first));
    const int fits = static_cast<int>(std::bit_width(static_cast<uint64_t>(last - first))) - 1;
    const int level = std::min(alignment, fits);
    nodes.push_back({.level = level, .index = first >> level});
    first += int64_t{1} << level;
  }
  return nodes;
}

namespace {

// Folds nodes[begin, end), all below (level, index), and returns the position of their sum.
int FoldBelow(
    std::span<const TreeNode> nodes, int begin, int end, TreeNode parent, std::vector<Fold>& out) {
  if (end - begin == 1) {
    return begin;
  }
  // More than one node lies below a parent of level 1 at least.
  const TreeNode left{.level = parent.level - 1, .index = parent.index << 1};
  const TreeNode right{.level = parent.level - 1, .index = (parent.index << 1) + 1};
  int split = begin;
  while (split < end && nodes[static_cast<size_t>(split)].first() < right.first()) {
    ++split;
  }
  if (split == begin) {
    return FoldBelow(nodes, begin, end, right, out);
  }
  const int left_position = FoldBelow(nodes, begin, split, left, out);
  if (split == end) {
    return left_position;
  }
  const int right_position = FoldBelow(nodes, split, end, right, out);
  out.push_back({.left = left_position, .right = right_position});
  return left_position;
}

}  // namespace

std::vector<Fold> FoldOrder(std::span<const TreeNode> nodes) {
  std::vector<Fold> folds;
  if (nodes.size() > 1) {
    const int level =
        static_cast<int>(std::bit_width(static_cast<uint64_t>(nodes.back().last() - 1)));
    FoldBelow(nodes, 0, static_cast<int>(nodes.size()), {.level = level, .index = 0}, folds);
  }
  return folds;
}

}  // namespace heddle
