// The layout found by the graph's structure against the one that names a model's parameters
// (tests/support/graph/layouts.h), and what it refuses.
#include "engine/graph/sharding/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/operator.h"
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

Layout Found(const Graph& graph, const std::vector<int>& units, bool divides_sequence = false) {
  const Result<Layout> layout = TensorParallel(graph, units, divides_sequence);
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
      for (const bool divides_sequence : {false, true}) {
        const Layout layout = Found(graph, units, divides_sequence);
        EXPECT_EQ(Violation(graph, GroupOf(graph, layout), TestSeed()), "") << divides_sequence;
      }
    }
  }
}

// No member has the whole residual stream, or its gradient, but where a linear layer reads it.
TEST(TensorParallelTest, ADividedSequenceHasNoSumsOfWholeActivations) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    const Graph graph = SmallTrainingGraph(SmallModel(family, 8, /*tied=*/false));
    const ShardedGraph sharded = GroupOf(graph, Found(graph, {1, 1}, true)).sharded;
    int scatters = 0;
    for (const Exchange& exchange : sharded.exchanges) {
      const Tensor& made = sharded.graph.tensor(exchange.to);
      const bool stream = made.type.shape.size() == 3 && made.type.shape[2] == 16;
      EXPECT_FALSE(exchange.form == ExchangeForm::kSum && stream) << made.name;
      scatters += exchange.form == ExchangeForm::kScatter ? 1 : 0;
    }
    EXPECT_EQ(scatters, 2 * (1 + 2 * 2)) << "the embedding or the head, and both halves of layers";
  }
}

TEST(TensorParallelTest, TheFewestHeadsAreThoseOfAnyLayer) {
  Graph graph = SmallTrainingGraph(SmallModel(ModelFamily::kLlama, 4, /*tied=*/false));
  for (Node& node : graph.nodes) {
    if (node.op->name() == "attention") {  // The last one has the fewest.
      const bool is_first = node.segment < static_cast<int>(graph.segments.size()) / 2;
      node.attributes = {{"heads", is_first ? 8 : 4}, {"kv_heads", is_first ? 4 : 2}};
    }
  }
  const auto fewest = FewestHeads(graph);
  ASSERT_TRUE(fewest.has_value());
  EXPECT_EQ(fewest->query, 4);
  EXPECT_EQ(fewest->key_value, 2);
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
