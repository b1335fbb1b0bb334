// Attributes, signatures and the builder's refusals.
#include "engine/graph/attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/builder.h"

namespace heddle::graph {
namespace {

TEST(AttributesTest, PrintsInOrderOfTheNames) {
  const Attributes attributes = {{"heads", int64_t{4}}, {"epsilon", 1e-5}};
  EXPECT_EQ(attributes.ToString(), "{epsilon=1e-05, heads=4}");
  EXPECT_EQ(Attributes().ToString(), "");
  EXPECT_EQ(attributes.Without({"epsilon", "absent"}).ToString(), "{heads=4}");
}

TEST(AttributesTest, ReadsByType) {
  Attributes attributes = {{"heads", int64_t{4}}, {"epsilon", 0.5}};
  EXPECT_EQ(attributes.Int("heads"), 4);
  EXPECT_EQ(attributes.Float("epsilon"), 0.5);
  EXPECT_EQ(attributes.FindInt("heads"), 4);
  EXPECT_EQ(attributes.FindInt("first_head"), std::nullopt);
  attributes.Set("heads", int64_t{8});
  EXPECT_EQ(attributes.Int("heads"), 8);
  EXPECT_EQ(attributes, (Attributes{{"epsilon", 0.5}, {"heads", int64_t{8}}}));
}

TEST(AttributesDeathTest, AMissingOrWronglyTypedOneIsABrokenInvariant) {
  const Attributes attributes = {{"heads", int64_t{4}}};
  EXPECT_DEATH(attributes.Int("tails"), "no attribute 'tails'");
  EXPECT_DEATH(attributes.Float("heads"), "no floating-point number");
}

Graph OneLinear() {
  GraphBuilder builder(DType::kBF16, 2, 3);
  builder.BeginSegment("all", -1);
  const TensorId table = builder.AddParameter("table", {5, 4}, {}, true);
  const TensorId bias = builder.AddParameter("bias", {5}, {}, false);
  const auto x = builder.Apply1("embedding", "x", {builder.tokens(), table});
  const auto logits = builder.Apply1("linear", "logits", {*x, table, bias});
  return builder.Finish(
      *builder.Apply1("cross_entropy", "loss", {*logits, builder.targets()}, {{"scale", 0.5}}));
}

TEST(GraphTest, SignatureHoldsTypesAndWhatDecidesTheCost) {
  const Graph graph = OneLinear();
  EXPECT_EQ(NodeSignature(graph, graph.nodes[1]), "linear(bf16[2, 3, 4], bf16[5, 4], fp32[5])");
  EXPECT_EQ(NodeSignature(graph, graph.nodes[2]), "cross_entropy(bf16[2, 3, 5], int32[2, 3])");
}

// Where a share begins changes values alone; which heads read which does not.
TEST(GraphTest, SharesOfOneSizeHaveOneSignature) {
  Graph graph = OneLinear();
  const std::string whole = NodeSignature(graph, graph.nodes[1]);
  for (const char* const name :
       {"features", "first_feature", "first_head", "first_position", "first_row"}) {
    graph.nodes[1].attributes.Set(name, int64_t{3});
    EXPECT_EQ(NodeSignature(graph, graph.nodes[1]), whole) << name;
  }
  graph.nodes[1].attributes.Set("group", int64_t{2});
  EXPECT_EQ(NodeSignature(graph, graph.nodes[1]), whole + "{group=2}");
}

TEST(GraphTest, PrintsANodeALine) {
  EXPECT_EQ(ToString(OneLinear()),
            "parameter table bf16[5, 4]\n"
            "parameter bias fp32[5]\n"
            "all forward: x = embedding(tokens, table): bf16[2, 3, 4]\n"
            "all forward: logits = linear(x, table, bias): bf16[2, 3, 5]\n"
            "all forward: loss, loss.1 = cross_entropy(logits, targets){scale=0.5}: fp64[], "
            "fp32[2, 3]\n");
}

TEST(GraphBuilderTest, AnErrorNamesTheNode) {
  GraphBuilder builder(DType::kF32, 2, 3);
  builder.BeginSegment("all", -1);
  const TensorId table = builder.AddParameter("table", {5, 4}, {}, true);
  const auto wrong = builder.Apply1("add", "sum", {table, builder.tokens()});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().message(),
            "sum: add: b is int32[2, 3], expected fp32[5, 4] to fit a fp32[5, 4]");
  const auto unknown = builder.Apply1("softmax", "p", {table});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().message(), "p: no operator is named 'softmax'");
}

TEST(GraphBuilderDeathTest, NamesAreUnique) {
  GraphBuilder builder(DType::kF32, 2, 3);
  builder.AddParameter("table", {5, 4}, {}, true);
  EXPECT_DEATH(builder.AddParameter("table", {5, 4}, {}, true), "two tensors are named 'table'");
}

}  // namespace
}  // namespace heddle::graph
