// The layout found by the graph's structure against the one that names a model's parameters
// (tests/support/graph/layouts.h), and what it refuses.
#include "engine/graph/sharding/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph/groups.h"
#include "tests/support/seed.h"

namespace heddle::graph {
namespace {

using heddle::testing::GroupCase;
using heddle::testing::GroupCases;
using heddle::testing::GroupOf;
using heddle::testing::LayoutOf;
using heddle::testing::SmallModel;
using heddle::testing::SmallTrainingGraph;
using heddle::testing::TestSeed;
using heddle::testing::Violation;
using ::testing::AllOf;
using ::testing::HasSubstr;

Layout Found(const Graph& graph, const std::vector<int>& units) {
  const Result<Layout> layout = TensorParallel(graph, units);
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return layout.ok() ? *layout : Layout{};
}

TEST(TensorParallelTest, TheStructureOfAModelGivesTheLayoutThatItsNamesGive) {
  for (const GroupCase& one : GroupCases()) {
    SCOPED_TRACE(one.name);
    const Graph graph = SmallTrainingGraph(one.config);
    int64_t sum = 0;
    for (const int units : one.parallel.units) {
      sum += units;
    }
    bool within_groups = false;
    for (const int units : one.parallel.units) {
      within_groups = within_groups || units * one.config.num_key_value_heads % sum != 0;
    }
    EXPECT_EQ(Found(graph, one.parallel.units), LayoutOf(graph, one.config,
                                                         {.units = one.parallel.units,
                                                          .vocabulary = true,
                                                          .within_groups = within_groups}));
  }
}

TEST(TensorParallelTest, MembersComputeWhatOneDeviceDoes) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    for (const std::vector<int>& units :
         std::vector<std::vector<int>>{{1, 1}, {4, 3, 1}, {1, 1, 1, 1}, {1, 0, 1}}) {
      const Graph graph = SmallTrainingGraph(
          SmallModel(family, family == ModelFamily::kLlama ? 2 : 8, /*tied=*/true));
      EXPECT_EQ(Violation(graph, GroupOf(graph, Found(graph, units)), TestSeed()), "");
    }
  }
}

TEST(TensorParallelTest, AShareOfLessThanAHeadIsRefused) {
  const Graph graph = SmallTrainingGraph(SmallModel(ModelFamily::kLlama, 2, /*tied=*/false));
  ASSERT_TRUE(FewestHeads(graph).has_value());
  EXPECT_EQ(FewestHeads(graph)->query, 8);
  EXPECT_EQ(FewestHeads(graph)->key_value, 2);
  EXPECT_TRUE(TensorParallel(graph, std::vector<int>(8, 1)).ok());
  const Status nine = TensorParallel(graph, std::vector<int>(9, 1)).status();
  EXPECT_EQ(nine.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(nine.message(), AllOf(HasSubstr("over 9 workers"), HasSubstr("8 heads of"),
                                    HasSubstr("layers.0.attention.mixed")));
  EXPECT_EQ(TensorParallel(graph, {0, 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TensorParallel(graph, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TensorParallel(graph, {2, -1}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::graph
