// Who adds what in a reproducible reduction, and which plans are none.
#include "comm/collective/fold_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"

namespace heddle::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Leaves 0, 1, 2 … of the tree, each held by the member that stands there.
TreeContributions HeldBy(const std::vector<int>& members) {
  TreeContributions contributions;
  for (size_t number = 0; number < members.size(); ++number) {
    const auto member = static_cast<size_t>(members[number]);
    contributions.nodes.resize(std::max(contributions.nodes.size(), member + 1));
    contributions.nodes[member].push_back({.level = 0, .index = static_cast<int64_t>(number)});
  }
  return contributions;
}

TEST(FoldPlanTest, WhatOneMemberHoldsItAddsItself) {
  const auto plan = MakeFoldPlan(HeldBy({0, 0, 1, 1}));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_THAT(plan->at_member, ElementsAre(Fold{0, 1}, Fold{2, 3}));
  EXPECT_THAT(plan->at_owner, ElementsAre(Fold{0, 2}));
  EXPECT_THAT(plan->travels, ElementsAre(true, false, true, false));
}

// A sum of several members' values is nobody's, even where the next operand is of one of them.
TEST(FoldPlanTest, ASumOfSeveralMembersValuesIsTheOwners) {
  const auto plan = MakeFoldPlan(HeldBy({0, 1, 0, 0, 0, 0}));
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->at_member, ElementsAre(Fold{2, 3}, Fold{4, 5}));
  EXPECT_THAT(plan->at_owner, ElementsAre(Fold{0, 1}, Fold{0, 2}, Fold{0, 4}));
  EXPECT_THAT(plan->travels, ElementsAre(true, true, true, false, true, false));
}

TEST(FoldPlanTest, LeavesAscendWhateverTheMembersOrder) {
  TreeContributions contributions;
  contributions.nodes = {{{.level = 0, .index = 5}, {.level = 1, .index = 1}},
                         {{.level = 0, .index = 4}, {.level = 1, .index = 0}}};
  const auto plan = MakeFoldPlan(contributions);
  ASSERT_TRUE(plan.ok());
  std::vector<std::pair<int, int>> leaves;
  for (const auto& leaf : plan->leaves) {
    leaves.emplace_back(leaf.member, leaf.index);
  }
  EXPECT_THAT(leaves,
              ElementsAre(std::pair(1, 1), std::pair(0, 1), std::pair(1, 0), std::pair(0, 0)));
  EXPECT_EQ(plan->leaves[1].node, (TreeNode{.level = 1, .index = 1}));
}

Status Planned(const std::vector<TreeNode>& nodes) {
  TreeContributions contributions;
  contributions.nodes = {{}, nodes};
  return MakeFoldPlan(contributions).status();
}

TEST(FoldPlanTest, NodesOutsideTheTreeAreRefused) {
  constexpr int64_t kNumbers = int64_t{1} << 61;
  for (const TreeNode& node : {TreeNode{-1, 0}, TreeNode{62, 0}, TreeNode{0, -1},
                               TreeNode{0, kNumbers}, TreeNode{61, 1}, TreeNode{60, 2}}) {
    const Status status = Planned({node});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << node.level << " " << node.index;
    EXPECT_THAT(status.message(), HasSubstr("of position 1"));
  }
  for (const TreeNode& node :
       {TreeNode{0, 0}, TreeNode{61, 0}, TreeNode{0, kNumbers - 1}, TreeNode{60, 1}}) {
    EXPECT_TRUE(Planned({node}).ok()) << node.level << " " << node.index;
  }
}

TEST(FoldPlanTest, NodesThatOverlapAreRefused) {
  const Status status = Planned({{.level = 1, .index = 1}, {.level = 0, .index = 3}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "tree nodes of two contributions overlap at number 3");
  EXPECT_FALSE(Planned({{.level = 0, .index = 3}, {.level = 0, .index = 3}}).ok());
  EXPECT_TRUE(Planned({{.level = 1, .index = 1}, {.level = 0, .index = 4}}).ok()) << "they meet";
}

TEST(FoldPlanTest, NothingAndTooMuchAreNoReduction) {
  EXPECT_EQ(Planned({}).message(), "a reduction of 0 contributions");
  std::vector<TreeNode> nodes(size_t{1} << 18);
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].index = static_cast<int64_t>(i);
  }
  EXPECT_TRUE(Planned(nodes).ok());
  nodes.push_back({.level = 0, .index = static_cast<int64_t>(nodes.size())});
  EXPECT_EQ(Planned(nodes).message(), "a reduction of 262145 contributions");
}

TEST(FoldPlanTest, WhatIsBroughtIsWhatThePlanSays) {
  const TreeContributions contributions = HeldBy({0, 1, 1});
  const Bytes value(8);
  const Bytes shorter(4);
  const std::vector<std::span<const std::byte>> one{value};
  const std::vector<std::span<const std::byte>> two{value, value};
  const std::vector<std::span<const std::byte>> unlike{value, shorter};
  EXPECT_TRUE(CheckContributions(contributions, 2, 0, one, 8).ok());
  EXPECT_TRUE(CheckContributions(contributions, 2, 1, two, 8).ok());
  for (const Status& status : {CheckContributions(contributions, 3, 0, one, 8),
                               CheckContributions(contributions, 2, 0, two, 8),
                               CheckContributions(contributions, 2, 1, one, 8)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("where the plan has other contributions"));
  }
  EXPECT_EQ(CheckContributions(contributions, 2, 1, unlike, 8).message(),
            "a contribution of 4 bytes to a result of 8");
}

}  // namespace
}  // namespace heddle::comm
