// Placements carried through whole graphs by the sharding rules.
#include <map>

#include <gtest/gtest.h>

#include "engine/graph/models/model.h"
#include "engine/graph/operator.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/seed.h"

namespace heddle::graph {
namespace {

using heddle::testing::RandomGraph;
using heddle::testing::TestSeed;

/// Placements of all tensors when those of `start` are given and each node takes the rule that fits
/// its inputs; a node without one is reported.
std::map<TensorId, Placement> Propagate(const Graph& graph,
                                        std::map<TensorId, Placement> placements) {
  for (const Node& node : graph.nodes) {
    std::vector<TensorType> inputs;
    std::vector<TensorType> outputs;
    std::vector<Placement> wanted;
    for (const TensorId id : node.inputs) {
      inputs.push_back(graph.tensor(id).type);
      wanted.push_back(placements[id]);
    }
    for (const TensorId id : node.outputs) {
      outputs.push_back(graph.tensor(id).type);
    }
    bool found = false;
    for (const ShardingRule& rule : node.op->ShardingRules(inputs, outputs, node.attributes)) {
      if (rule.inputs == wanted) {
        found = true;
        for (size_t o = 0; o < node.outputs.size(); ++o) {
          placements[node.outputs[o]] = rule.outputs[o];
        }
        break;
      }
    }
    EXPECT_TRUE(found) << graph.tensor(node.outputs[0]).name << " by " << node.op->name();
    if (!found) {
      return placements;
    }
  }
  return placements;
}

void ExpectBatchSharded(const Graph& graph) {
  std::map<TensorId, Placement> start = {{graph.tokens, Placement::Shard(0)},
                                         {graph.targets, Placement::Shard(0)}};
  for (const Parameter& parameter : graph.parameters) {
    start[parameter.compute] = Placement::Replicate();
  }
  auto placements = Propagate(graph, start);
  for (size_t id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensors[id];
    const Placement placement = placements[static_cast<TensorId>(id)];
    if (tensor.kind == TensorKind::kWeightGradient || tensor.kind == TensorKind::kLoss) {
      EXPECT_EQ(placement, Placement::Partial()) << tensor.name;
    } else if (tensor.kind != TensorKind::kParameter) {
      EXPECT_EQ(placement, Placement::Shard(0)) << tensor.name;
    }
  }
}

// What engine/program's lowering rests on: sharding the batch needs no communication but the sums
// of weight gradients and losses.
TEST(PlacementTest, BatchShardsThroughWholeTrainingGraphs) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    ModelConfig config;
    config.family = family;
    config.num_hidden_layers = 2;
    config.dropout = family == ModelFamily::kGpt2 ? 0.1 : 0;
    const auto graph = BuildTrainingGraph(config, {.microbatch_size = 4});
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    ExpectBatchSharded(*graph);
  }
  const uint64_t seed = TestSeed();
  for (uint64_t i = 0; i < 50; ++i) {
    ExpectBatchSharded(RandomGraph(seed + i, DType::kF32));
  }
}

// Megatron-LM's tensor parallelism through one attention and one MLP half, forward: column, heads,
// row; the only partial values are those before the residual connection.
TEST(PlacementTest, TensorParallelHalvesNeedOneSumEach) {
  ModelConfig config;
  config.num_hidden_layers = 1;
  config.num_key_value_heads = 2;
  const auto graph = BuildEvaluationGraph(config, {.microbatch_size = 2});
  ASSERT_TRUE(graph.ok());
  auto id = [&](std::string_view name) {
    for (size_t i = 0; i < graph->tensors.size(); ++i) {
      if (graph->tensors[i].name == name) {
        return static_cast<TensorId>(i);
      }
    }
    ADD_FAILURE() << "no tensor " << name;
    return TensorId{-1};
  };
  auto placement_of = [&](const std::string& weight, Placement x, Placement w) -> Placement {
    const Node& node = graph->node(graph->tensor(id(weight)).producer);
    std::vector<TensorType> inputs;
    for (const TensorId input : node.inputs) {
      inputs.push_back(graph->tensor(input).type);
    }
    const std::vector<TensorType> outputs = {graph->tensor(node.outputs[0]).type};
    for (const ShardingRule& rule : node.op->ShardingRules(inputs, outputs, node.attributes)) {
      if (rule.inputs == std::vector{x, w}) {
        return rule.outputs[0];
      }
    }
    ADD_FAILURE() << "no rule for " << weight;
    return Placement::Replicate();
  };
  const std::string layer = "layers.0.";
  for (const char* const column : {"attention.query", "attention.key", "mlp.gate", "mlp.up"}) {
    EXPECT_EQ(placement_of(layer + column, Placement::Replicate(), Placement::Shard(0)),
              Placement::Shard(2));
  }
  for (const char* const row : {"attention.output", "mlp.down"}) {
    EXPECT_EQ(placement_of(layer + row, Placement::Shard(2), Placement::Shard(1)),
              Placement::Partial());
  }
  // Two of four heads with their key/value head are one unit.
  const Node& attention = graph->node(graph->tensor(id("layers.0.attention.mixed")).producer);
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  for (const TensorId input : attention.inputs) {
    inputs.push_back(graph->tensor(input).type);
  }
  for (const TensorId output : attention.outputs) {
    outputs.push_back(graph->tensor(output).type);
  }
  bool found = false;
  for (const ShardingRule& rule :
       attention.op->ShardingRules(inputs, outputs, attention.attributes)) {
    found = found || (rule.inputs == std::vector{Placement::Shard(2, 128), Placement::Shard(2, 64),
                                                 Placement::Shard(2, 64)} &&
                      rule.outputs[0] == Placement::Shard(2, 128) &&
                      rule.scaled == std::vector<std::string>{"heads", "kv_heads"});
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace heddle::graph
