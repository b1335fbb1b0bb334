// Members of a group that run their local graphs in lockstep hold, put together, every tensor of one
// device (tests/support/graph/lockstep.h).
#include "engine/graph/sharding/localise.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "engine/graph/sharding/complete.h"
#include "tests/support/graph/groups.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::graph {
namespace {

using heddle::testing::Group;
using heddle::testing::GroupCase;
using heddle::testing::GroupCases;
using heddle::testing::GroupOf;
using heddle::testing::LayoutOf;
using heddle::testing::RandomGraph;
using heddle::testing::RandomLayout;
using heddle::testing::Scaled;
using heddle::testing::SmallModel;
using heddle::testing::SmallTrainingGraph;
using heddle::testing::TestSeed;
using heddle::testing::TestSeeds;
using heddle::testing::ToString;
using heddle::testing::Violation;

int Count(const ShardedGraph& sharded, ExchangeForm form) {
  return static_cast<int>(std::ranges::count(sharded.exchanges, form, &Exchange::form));
}

int CountNodes(const ShardedGraph& sharded, std::string_view op) {
  return static_cast<int>(std::ranges::count_if(
      sharded.graph.nodes, [&](const Node& node) { return node.op->name() == op; }));
}

const Sharding& ShardingBy(const ShardedGraph& sharded, std::string_view name) {
  for (size_t i = 0; i < sharded.shardings.size(); ++i) {
    if (sharded.graph.tensors[i].name == name) {
      return sharded.shardings[i];
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return sharded.shardings[0];
}

TEST(LocaliseTest, AGraphThatNothingCutsIsTheGraphItself) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    const ModelConfig config = SmallModel(family, 8, /*tied=*/false);
    const Graph graph = SmallTrainingGraph(config);
    for (const Layout& layout :
         {Layout{}, LayoutOf(graph, config, {.units = {8}, .vocabulary = true}),
          Layout{.cuts = {{.units = {4, 4}}}, .tensors = {}}}) {
      const Group group = GroupOf(graph, layout);
      EXPECT_TRUE(group.sharded.exchanges.empty());
      EXPECT_TRUE(group.sharded.replicated.empty());
      for (const LocalGraph& local : group.members) {
        EXPECT_EQ(ToString(local.graph), ToString(graph));
        ASSERT_EQ(local.order.size(), graph.nodes.size());
        for (size_t i = 0; i < local.order.size(); ++i) {
          EXPECT_EQ(local.order[i].node, static_cast<NodeId>(i));
        }
        EXPECT_EQ(local.graph.tensors.size(), graph.tensors.size());
      }
    }
  }
}

// Megatron-LM's tensor parallelism: one sum a half of a layer, forward and backward. The partial
// gradients of query, key and value (of gate and up) are added before they are exchanged.
TEST(LocaliseTest, TensorParallelHalvesNeedOneSumEachWay) {
  const ModelConfig config = SmallModel(ModelFamily::kLlama, 4, /*tied=*/false);
  const Graph graph = SmallTrainingGraph(config);
  const Group group = GroupOf(graph, LayoutOf(graph, config, {.units = {4, 4}}));
  EXPECT_EQ(Count(group.sharded, ExchangeForm::kSum), 4 * config.num_hidden_layers);
  EXPECT_EQ(group.sharded.exchanges.size(), static_cast<size_t>(4 * config.num_hidden_layers))
      << ToString(group.sharded);
  EXPECT_TRUE(group.sharded.replicated.empty());
  EXPECT_EQ(Violation(graph, group, TestSeed()), "");
  // Weight gradients are placed as their parameters are, those of norms partial or whole.
  const Sharding query = ShardingBy(group.sharded, "layers.0.attention.query.weight.grad.0");
  EXPECT_TRUE(Alike(query, ShardingBy(group.sharded, "layers.0.attention.query.weight")));
  EXPECT_EQ(query.held, (std::vector<Range>{{0, 8}, {8, 16}}));
  // A member has half of the heads, and the types of half of the features.
  const LocalGraph& second = group.members[1];
  for (const Node& node : second.graph.nodes) {
    if (node.op->name() == "attention") {
      EXPECT_EQ(node.attributes.Int("heads"), 4);
      EXPECT_EQ(node.attributes.Int("kv_heads"), 2);
      EXPECT_EQ(second.graph.tensor(node.outputs[0]).type.shape, (Shape{2, 5, 8}));
      EXPECT_EQ(second.boxes[static_cast<size_t>(node.outputs[0])],
                (Box{.offset = {0, 0, 8}, .extent = {2, 5, 8}}));
    }
  }
  for (const Exchange& exchange : group.sharded.exchanges) {
    EXPECT_GE(exchange.reader, 0);
  }
}

TEST(LocaliseTest, MembersComputeWhatOneDeviceDoes) {
  for (const GroupCase& one : GroupCases()) {
    const Graph graph = SmallTrainingGraph(one.config);
    const Group group = GroupOf(graph, LayoutOf(graph, one.config, one.parallel));
    EXPECT_EQ(Violation(graph, group, TestSeed()), "") << one.name << "\n"
                                                       << ToString(group.sharded);
    EXPECT_EQ(group.sharded.replicated, std::vector<std::string>{}) << one.name;
    EXPECT_EQ(Count(group.sharded, ExchangeForm::kGather) > 0, one.parallel.sequence) << one.name;
  }
}

// Members that share a key/value head have addends of its gradient, which go to one of them; then
// it is as if each head were one member's, and there is still one sum a half of a layer.
TEST(LocaliseTest, TheGradientOfASharedKeyHeadGoesToOneMember) {
  const ModelConfig config = SmallModel(ModelFamily::kLlama, 2, /*tied=*/false);
  const Graph graph = SmallTrainingGraph(config);
  const std::vector<int> units(8, 1);
  const Group group =
      GroupOf(graph, LayoutOf(graph, config, {.units = units, .within_groups = true}));
  EXPECT_EQ(Count(group.sharded, ExchangeForm::kScatter), 2 * config.num_hidden_layers);
  EXPECT_EQ(Count(group.sharded, ExchangeForm::kSum), 4 * config.num_hidden_layers);
  const Range none;
  EXPECT_EQ(ShardingBy(group.sharded, "layers.0.attention.key").held,
            (std::vector<Range>{{0, 2}, {0, 2}, {0, 2}, {0, 2}, {2, 4}, {2, 4}, {2, 4}, {2, 4}}));
  EXPECT_EQ(ShardingBy(group.sharded, "layers.0.attention.key.weight.grad.0").held,
            (std::vector<Range>{{0, 2}, none, none, none, {2, 4}, none, none, none}));
}

// Megatron-LM's sequence parallelism: a gather before and a scatter after each half.
TEST(LocaliseTest, SequenceHalvesGatherAndScatterOnceEachWay) {
  const ModelConfig config = SmallModel(ModelFamily::kLlama, 4, /*tied=*/false);
  const Graph graph = SmallTrainingGraph(config);
  const Group group = GroupOf(graph, LayoutOf(graph, config, {.units = {4, 4}, .sequence = true}));
  EXPECT_EQ(Count(group.sharded, ExchangeForm::kGather), 4 * config.num_hidden_layers);
  EXPECT_EQ(Count(group.sharded, ExchangeForm::kScatter), 4 * config.num_hidden_layers);
  EXPECT_EQ(Count(group.sharded, ExchangeForm::kSum), 0) << ToString(group.sharded);
}

TEST(LocaliseTest, SegmentsMayHaveSharesOfTheirOwn) {
  const ModelConfig config = SmallModel(ModelFamily::kLlama, 8, /*tied=*/false);
  const Graph graph = SmallTrainingGraph(config);
  Layout layout = LayoutOf(graph, config, {.units = {4, 3, 1}});
  layout.cuts.push_back({.units = {0, 2, 6}});
  for (auto& [name, placed] : layout.tensors) {
    placed.cut = name.starts_with("layers.1") ? 1 : 0;
  }
  const Group group = GroupOf(graph, layout);
  EXPECT_EQ(Violation(graph, group, TestSeed()), "");
  EXPECT_EQ(Count(group.sharded, ExchangeForm::kSum), 4 * config.num_hidden_layers);
  const Sharding& first = ShardingBy(group.sharded, "layers.0.attention.mixed");
  EXPECT_EQ(first.cut, 0);
  EXPECT_EQ(first.held, (std::vector<Range>{{0, 8}, {8, 14}, {14, 16}}));
  const Sharding& second = ShardingBy(group.sharded, "layers.1.attention.mixed");
  EXPECT_EQ(second.cut, 1);
  EXPECT_EQ(second.held, (std::vector<Range>{{0, 0}, {0, 4}, {4, 16}}));
}

// The bias of a row-cut layer is added to the sum; the loss of a cut vocabulary exchanges the
// largest logits and the sums, never the logits.
TEST(LocaliseTest, PartsReplaceOperatorsThatNeedAnExchangeInside) {
  const ModelConfig config = SmallModel(ModelFamily::kGpt2, 8, /*tied=*/true);
  const Graph graph = SmallTrainingGraph(config);
  const Group whole = GroupOf(graph, LayoutOf(graph, config, {.units = {4, 4}}));
  EXPECT_EQ(CountNodes(whole.sharded, "add_bias"), 2 * config.num_hidden_layers);
  EXPECT_EQ(CountNodes(whole.sharded, "cross_entropy"), 1);
  const Group cut = GroupOf(graph, LayoutOf(graph, config, {.units = {4, 4}, .vocabulary = true}));
  EXPECT_EQ(CountNodes(cut.sharded, "cross_entropy"), 0);
  EXPECT_EQ(CountNodes(cut.sharded, "cross_entropy_of_sums"), 1);
  EXPECT_EQ(Count(cut.sharded, ExchangeForm::kMax), 1);
  // One each for embedding, exponentials and the gradient of what the head reads.
  EXPECT_EQ(Count(cut.sharded, ExchangeForm::kSum), 4 * config.num_hidden_layers + 3);
  EXPECT_EQ(cut.sharded.exchanges.size(), static_cast<size_t>(4 * config.num_hidden_layers + 4));
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    EXPECT_EQ(cut.sharded.graph.tensors[i].name, graph.tensors[i].name);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_EQ(cut.sharded.graph.nodes[i].segment, graph.nodes[i].segment);
  }
}

// For each position the whole operator gathers the vocabulary. Parts exchange the largest logit, which
// two of them read, and two sums: 8 values, as each passes twice.
TEST(LocaliseTest, PartsReplaceAnOperatorWhereTheyExchangeLess) {
  for (const int64_t vocabulary : {7, 8, 9}) {
    ModelConfig config = SmallModel(ModelFamily::kLlama, 8, /*tied=*/false);
    config.vocab_size = vocabulary;
    const Graph graph = SmallTrainingGraph(config);
    const Group group =
        GroupOf(graph, LayoutOf(graph, config, {.units = {4, 4}, .vocabulary = true}));
    EXPECT_EQ(CountNodes(group.sharded, "cross_entropy_of_sums"), vocabulary > 8 ? 1 : 0);
    EXPECT_EQ(Violation(graph, group, TestSeed()), "");
  }
}

// What crosses an edge as the layout places it is kept in those parts; otherwise it travels as it
// is asked for, and readers have it as the layout says.
TEST(LocaliseTest, EdgesTravelAsTheyAreAskedFor) {
  const ModelConfig config = SmallModel(ModelFamily::kLlama, 8, /*tied=*/false);
  const Graph graph = SmallTrainingGraph(config);
  const Layout layout = LayoutOf(graph, config, {.units = {4, 4}, .sequence = true});
  const auto tensor =
      std::ranges::find(graph.tensors, std::string("layers.0.mlp.residual"), &Tensor::name);
  ASSERT_NE(tensor, graph.tensors.end());
  const auto id = static_cast<TensorId>(tensor - graph.tensors.begin());
  const Sharding halves = {
      .kind = Placement::Kind::kShard, .dim = 1, .cut = -1, .held = {{0, 2}, {2, 5}}};
  const Sharding first = {
      .kind = Placement::Kind::kShard, .dim = 1, .cut = -1, .held = {{0, 5}, {0, 0}}};
  for (const Sharding& wanted : {halves, first}) {
    const auto sharded = Complete(graph, layout, {{id, wanted}});
    ASSERT_TRUE(sharded.ok()) << sharded.status().ToString();
    const TensorId edge = sharded->edges.at(id);
    const Sharding& travels = sharded->shardings[static_cast<size_t>(edge)];
    EXPECT_TRUE(Alike(travels, wanted));
    EXPECT_EQ(travels.cut, Alike(wanted, halves) ? 0 : -1);
    for (const Node& node : sharded->graph.nodes) {
      for (const TensorId input : node.inputs) {
        if (input == edge) {
          EXPECT_TRUE(Alike(travels, halves)) << node.op->name();
        }
      }
    }
  }
}

// No rule of a norm cuts the features, so it gathers them.
TEST(LocaliseTest, AnOperatorWithoutARuleIsReplicatedAndNamed) {
  const ModelConfig config = SmallModel(ModelFamily::kLlama, 8, /*tied=*/false);
  const Graph graph = SmallTrainingGraph(config);
  Layout layout = LayoutOf(graph, config, {.units = {4, 4}});
  layout.tensors["layers.0.mlp.residual"] = {.placement = Placement::Shard(2)};
  const Group group = GroupOf(graph, layout);
  EXPECT_EQ(Violation(graph, group, TestSeed()), "");
  EXPECT_EQ(group.sharded.replicated,
            (std::vector<std::string>{"layers.1.attention.norm", "layers.1.mlp.norm", "head.norm",
                                      "layers.1.mlp.residual.grad"}));
}

// What the layout places whole is whole for its readers, too.
TEST(LocaliseTest, ReadersReadAnActivationAsItIsPlaced) {
  const ModelConfig config = SmallModel(ModelFamily::kLlama, 8, /*tied=*/false);
  const Graph graph = SmallTrainingGraph(config);
  Layout layout = LayoutOf(graph, config, {.units = {4, 4}});
  layout.tensors["layers.0.attention.query"] = {};
  const Group group = GroupOf(graph, layout);
  EXPECT_EQ(Violation(graph, group, TestSeed()), "");
  EXPECT_EQ(ShardingBy(group.sharded, "layers.0.attention.query").kind, Placement::Kind::kShard);
  EXPECT_EQ(ShardingBy(group.sharded, "layers.0.attention.query.rotated").kind,
            Placement::Kind::kReplicate);
}

/// The first nodes that read what exchanges make, also by way of another exchange.
std::map<TensorId, NodeId> ReadersOf(const ShardedGraph& sharded) {
  std::map<TensorId, TensorId> source;
  for (const Exchange& exchange : sharded.exchanges) {
    source[exchange.to] = exchange.from;
  }
  std::map<TensorId, NodeId> readers;
  for (const Step& step : sharded.order) {
    for (TensorId id :
         step.node < 0 ? std::vector<TensorId>{} : sharded.graph.node(step.node).inputs) {
      for (; source.contains(id); id = source.at(id)) {
        readers.emplace(id, step.node);
      }
    }
  }
  return readers;
}

TEST(LocaliseTest, RandomLayoutsOfRandomGraphsComputeWhatOneDeviceDoes) {
  std::map<ExchangeForm, int> seen;
  int empty = 0;
  int replicated = 0;
  for (const uint64_t seed : TestSeeds(Scaled(16, 48, 1000))) {
    HEDDLE_TRACE_SEED(seed);
    const Graph graph = RandomGraph(seed, DType::kF64);
    Random random(seed + 1);
    const Group group = GroupOf(graph, RandomLayout(graph, random));
    ASSERT_EQ(Violation(graph, group, seed), "") << ToString(group.sharded);
    empty += static_cast<int>(std::ranges::count_if(group.members, [&](const LocalGraph& local) {
      return local.order.size() < group.sharded.order.size();
    }));
    replicated += static_cast<int>(group.sharded.replicated.size());
    const std::map<TensorId, NodeId> readers = ReadersOf(group.sharded);
    std::set<TensorId> sources;
    for (const Exchange& exchange : group.sharded.exchanges) {
      ++seen[exchange.form];
      const auto reader = readers.find(exchange.to);
      EXPECT_EQ(exchange.reader, reader == readers.end() ? -1 : reader->second);
      const bool whole = std::ranges::all_of(
          exchange.received, [&](const Range& range) { return range == exchange.received[0]; });
      EXPECT_TRUE(!whole || exchange.form == ExchangeForm::kSlice ||
                  exchange.form == ExchangeForm::kFill || sources.insert(exchange.from).second)
          << "made whole twice: " << group.sharded.graph.tensor(exchange.from).name;
    }
  }
  // The graphs and layouts are worth it: every form, members without a share, and gathers.
  EXPECT_EQ(seen.size(), 6U);
  EXPECT_GT(empty, 0);
  EXPECT_GT(replicated, 0);
}

}  // namespace
}  // namespace heddle::graph
