// Memory, profile and hash of programs.
#include <functional>

#include <gtest/gtest.h>

#include "engine/graph/models/model.h"
#include "engine/graph/operator.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/profile.h"
#include "tests/engine_program/graphs.h"

namespace heddle::program {
namespace {

using testing::ChainGraph;
using testing::PipelineOfCuts;
using testing::PlanOf;

Program MustLower(const graph::Graph& graph, const Plan& plan, int rank = 0) {
  Result<Program> program = Lower(graph, plan, rank);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

TEST(MemoryTest, StateIsMasterMomentsAndAnUnlikeComputeCopy) {
  const Plan plan = SingleWorkerPlan("alone", 2, 1);
  const graph::Graph single = ChainGraph(2);
  // Two parameters of [8, 4].
  EXPECT_EQ(StateBytes(single, MustLower(single, plan)), 2 * 32 * (3 * 4));
  const graph::Graph half = ChainGraph(2, false, DType::kBF16);
  EXPECT_EQ(StateBytes(half, MustLower(half, plan)), 2 * 32 * (3 * 4 + 2));
}

TEST(MemoryTest, PeakOfAProgramFollowedByHand) {
  const graph::Graph graph = ChainGraph(2);
  // The full listing is in lower_test. The peak is at instruction 13: tokens 8, loss 8, the
  // embedding's gradient 32, two weight gradients of 128.
  EXPECT_EQ(PeakSlotBytes(MustLower(graph, SingleWorkerPlan("alone", 2, 1))),
            8 + 8 + 32 + 128 + 128);
}

TEST(MemoryTest, RecomputeHoldsFewerActivations) {
  graph::ModelConfig config;
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_hidden_layers = 8;
  const Result<graph::Graph> graph = graph::BuildTrainingGraph(config, {.sequence_length = 256});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const int segments = static_cast<int>(graph->segments.size());
  Plan plan = PlanOf(2, {PipelineOfCuts({0, segments - 4, segments}, 0, 0, 8)});
  const int64_t kept = PeakSlotBytes(MustLower(*graph, plan, 0));
  plan.pipelines[0].stages[0].recompute = true;
  const int64_t recomputed = PeakSlotBytes(MustLower(*graph, plan, 0));
  EXPECT_LT(recomputed, kept / 2);
}

TEST(ProfileTest, MeasuredSecondsWinOverPrices) {
  const graph::Graph graph = ChainGraph(3);
  const graph::Node& node = graph.nodes[1];
  WorkerProfile profile;
  profile.flops_per_second = 100;
  profile.bytes_per_second = 10;
  std::vector<graph::TensorType> inputs;
  for (const graph::TensorId input : node.inputs) {
    inputs.push_back(graph.tensor(input).type);
  }
  const std::vector<graph::TensorType> outputs = {graph.tensor(node.outputs[0]).type};
  const graph::Cost cost = node.op->CostOf(inputs, outputs, node.attributes);
  EXPECT_GT(cost.flops, 0);
  EXPECT_DOUBLE_EQ(profile.Seconds(graph, node), std::max(cost.flops / 100, cost.bytes / 10));
  profile.seconds[graph::NodeSignature(graph, node)] = 0.25;
  EXPECT_DOUBLE_EQ(profile.Seconds(graph, node), 0.25);
}

TEST(ProfileTest, BytesArePricedByRateOrByPasses) {
  WorkerProfile profile;
  EXPECT_DOUBLE_EQ(profile.ByteSeconds("fold", 100), 0);
  profile.bytes_per_second = 1000;
  EXPECT_DOUBLE_EQ(profile.ByteSeconds("fold", 100), 0.3);
  EXPECT_DOUBLE_EQ(profile.ByteSeconds("update", 100), 0.7);
  EXPECT_DOUBLE_EQ(profile.ByteSeconds("copy", 100), 0.2);
  profile.seconds["fold"] = 0.01;
  EXPECT_DOUBLE_EQ(profile.ByteSeconds("fold", 100), 1.0);
}

// The hash crosses machines and versions: workers compare it before a generation starts.
TEST(HashTest, IsAConstantOfGraphAndPlan) {
  const graph::Graph graph = ChainGraph(4, true);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 3)});
  const uint64_t hash = ProgramHash(MustLower(graph, plan), graph);
  EXPECT_EQ(hash, ProgramHash(MustLower(ChainGraph(4, true), plan), ChainGraph(4, true)));
  EXPECT_EQ(hash, uint64_t{12210718065002229881U});
}

TEST(HashTest, DependsOnEverythingThatDecidesTheWork) {
  const graph::Graph graph = ChainGraph(4);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 3)});
  const Program program = MustLower(graph, plan);
  const uint64_t hash = ProgramHash(program, graph);
  const std::vector<std::function<void(graph::Graph&)>> graph_changes = {
      [](graph::Graph& g) { g.optimizer.beta1 += 1e-15; },
      [](graph::Graph& g) { g.optimizer.weight_decay = 0; },
      [](graph::Graph& g) { g.parameters[0].decay = false; },
      [](graph::Graph& g) { g.parameters[0].name += "x"; },
      [](graph::Graph& g) { g.compute = DType::kBF16; },
      [](graph::Graph& g) { g.nodes[0].attributes.Set("x", 1.0 / 3); },
  };
  for (size_t i = 0; i < graph_changes.size(); ++i) {
    graph::Graph changed = graph;
    graph_changes[i](changed);
    EXPECT_NE(ProgramHash(program, changed), hash) << "graph change " << i;
  }
  const std::vector<std::function<void(Program&)>> program_changes = {
      [](Program& p) { ++p.generation; },
      [](Program& p) { ++p.rank; },
      [](Program& p) { p.determinism = Determinism::kRelaxed; },
      [](Program& p) { p.slots[0].microbatch = 5; },
      [](Program& p) { p.instructions.pop_back(); },
      [](Program& p) { p.instructions[0].microbatch = 5; },
      [](Program& p) { p.vote.norms.pop_back(); },
      [](Program& p) { p.peers.clear(); },
      [](Program& p) { ++p.vote_index; },
  };
  for (size_t i = 0; i < program_changes.size(); ++i) {
    Program changed = program;
    program_changes[i](changed);
    EXPECT_NE(ProgramHash(changed, graph), hash) << "program change " << i;
  }
}

}  // namespace
}  // namespace heddle::program
