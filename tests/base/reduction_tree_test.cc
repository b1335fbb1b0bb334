// The order of additions against its definition, for every way to share out the contributions.
#include "base/tensor/reduction_tree.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle {
namespace {

// The definition, written out: the sum below a node as a bracketed expression; nothing without
// leaves.
std::optional<std::string> Expression(TreeNode node, int64_t first, int64_t last) {
  if (node.last() <= first || node.first() >= last) {
    return std::nullopt;
  }
  if (node.level == 0) {
    return std::to_string(node.index);
  }
  const auto left = Expression({node.level - 1, 2 * node.index}, first, last);
  const auto right = Expression({node.level - 1, 2 * node.index + 1}, first, last);
  return left && right ? "(" + *left + "+" + *right + ")" : left ? left : right;
}

std::string Folded(const std::vector<TreeNode>& nodes, int64_t total) {
  std::vector<std::string> values;
  for (const TreeNode& node : nodes) {
    values.push_back(*Expression(node, 0, total));
  }
  std::vector<bool> used(nodes.size());
  for (const Fold& fold : FoldOrder(nodes)) {
    const auto left = static_cast<size_t>(fold.left);
    const auto right = static_cast<size_t>(fold.right);
    EXPECT_LT(fold.left, fold.right);
    EXPECT_FALSE(used[left] || used[right]) << "a folded value is used again";
    used[right] = true;
    values[left] = "(" + values[left] + "+" + values[right] + ")";
  }
  return values[0];
}

TEST(ReductionTreeTest, CoverIsExactAscendingAndSmallest) {
  for (int64_t first = 0; first < 40; ++first) {
    for (int64_t last = first; last < 41; ++last) {
      int64_t at = first;
      size_t odd_ends = 0;
      const auto nodes = CoverRange(first, last);
      for (const TreeNode& node : nodes) {
        EXPECT_EQ(node.first(), at);
        at = node.last();
      }
      EXPECT_EQ(at, last);
      // The smallest cover, climbing level by level: an odd end costs one node there.
      for (int64_t low = first, high = last; low < high; low /= 2, high /= 2) {
        odd_ends += low % 2 == 1 ? 1U : 0U;
        low += low % 2;
        odd_ends += high % 2 == 1 && low < high ? 1U : 0U;
        high -= high % 2;
      }
      EXPECT_EQ(nodes.size(), odd_ends) << first << " " << last;
    }
  }
}

TEST(ReductionTreeTest, TheExpressionDoesNotDependOnTheSharing) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 300; ++round) {
    const int64_t total = random.Between(1, 40);
    std::vector<TreeNode> nodes;
    for (int64_t first = 0; first < total;) {
      const int64_t last = random.Between(first + 1, total);
      for (const TreeNode& node : CoverRange(first, last)) {
        nodes.push_back(node);
      }
      first = last;
    }
    EXPECT_EQ(Folded(nodes, total), *Expression({6, 0}, 0, total));
  }
}

TEST(ReductionTreeTest, OneNodeOrNoneNeedsNoAddition) {
  EXPECT_TRUE(FoldOrder({}).empty());
  EXPECT_TRUE(FoldOrder(std::vector<TreeNode>{{3, 1}}).empty());
  EXPECT_EQ(FoldOrder(std::vector<TreeNode>{{0, 0}, {0, 1}}), (std::vector<Fold>{{0, 1}}));
}

}  // namespace
}  // namespace heddle
