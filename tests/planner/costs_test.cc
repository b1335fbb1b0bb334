/// \file
/// The search's tables against sums taken directly from the graph, against what the lowering really
/// sends, and classes of workers against what tells two workers apart.
#include "planner/predictor/costs.h"

#include <set>

#include <gtest/gtest.h>

#include "engine/program/lowering/lower.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using graph::Phase;
using program::Code;

/// Every price is there and none is small beside another.
program::WorkerProfile RichProfile() {
  program::WorkerProfile profile = SpeedProfile("w0", 1);
  profile.instruction_seconds = 1e-3;
  profile.seconds["fold"] = 3e-8;
  profile.seconds["update"] = 7e-8;
  profile.memory_bytes = 12345;
  return profile;
}

/// By segment: the seconds of the nodes that a lowered microbatch runs twice.
std::vector<double> SecondsRunTwice(const graph::Graph& graph,
                                    const program::WorkerProfile& profile) {
  program::Plan plan = program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), 1);
  plan.pipelines[0].stages[0].recompute = true;
  const auto lowered = program::Lower(graph, plan, 0);
  EXPECT_TRUE(lowered.ok()) << lowered.status().ToString();
  std::set<graph::NodeId> seen;
  std::vector<double> seconds(graph.segments.size(), 0);
  for (const program::Instruction& instruction : lowered->instructions) {
    if (instruction.code == Code::kRun && !seen.insert(instruction.node).second) {
      const graph::Node& node = graph.node(instruction.node);
      seconds[static_cast<size_t>(node.segment)] += profile.Seconds(graph, node) + 1e-3;
    }
  }
  return seconds;
}

TEST(CostsTest, SecondsOfASegmentAreTheSumOverItsNodes) {
  const graph::Graph graph = LlamaGraph({.layers = 3});
  const auto table = BuildSegmentTable(graph);
  ASSERT_TRUE(table.ok());
  const program::WorkerProfile profile = RichProfile();
  const WorkerCosts costs = BuildWorkerCosts(graph, *table, profile);
  EXPECT_EQ(costs.memory_bytes, 12345);
  EXPECT_EQ(costs.message_seconds, 1e-3);
  const std::vector<double> again = SecondsRunTwice(graph, profile);
  for (int segment = 0; segment < table->segments; ++segment) {
    double forward = 0;
    double backward = 0;
    for (const graph::Node& node : graph.nodes) {
      if (node.segment != segment) {
        continue;
      }
      double& sum = node.phase == Phase::kForward ? forward : backward;
      sum += profile.Seconds(graph, node) + 1e-3;
      for (const graph::TensorId output : node.outputs) {
        if (graph.tensor(output).kind == graph::TensorKind::kWeightGradient) {
          sum += 3e-8 * static_cast<double>(graph.tensor(output).type.bytes()) + 1e-3;
        }
      }
    }
    double update = 0;
    for (const graph::ParameterId id : table->parameters[static_cast<size_t>(segment)]) {
      update += 7e-8 * 4 * static_cast<double>(ElementCount(graph.parameter(id).shape)) + 1e-3;
    }
    EXPECT_GT(update, 0);
    EXPECT_NEAR(costs.Forward(segment, segment + 1), forward, 1e-12);
    EXPECT_NEAR(costs.Backward(segment, segment + 1), backward, 1e-12);
    EXPECT_NEAR(costs.Update(segment, segment + 1), update, 1e-12);
    EXPECT_NEAR(costs.Stage(segment, segment + 1, false), forward + backward, 1e-12);
    EXPECT_NEAR(costs.Stage(segment, segment + 1, true),
                forward + backward + again[static_cast<size_t>(segment)], 1e-12);
  }
  const double whole = costs.Forward(0, table->segments);
  EXPECT_NEAR(costs.Forward(0, 2) + costs.Forward(2, table->segments), whole, 1e-12);
}

TEST(CostsTest, BytesAtACutAreWhatTheLoweredStagesSend) {
  const graph::Graph graph = LlamaGraph({.layers = 3});
  const auto table = BuildSegmentTable(graph);
  ASSERT_TRUE(table.ok());
  const auto sent = [](const program::Program& program) {
    std::pair<int64_t, int> sum;
    for (const program::Instruction& instruction : program.instructions) {
      if (instruction.code == Code::kSend && instruction.microbatch == 0) {
        sum.first += program.slots[static_cast<size_t>(instruction.inputs.at(0))].type.bytes();
        ++sum.second;
      }
    }
    return sum;
  };
  for (int cut = 1; cut < table->segments; ++cut) {
    program::Plan plan;
    plan.workers = {"w0", "w1"};
    plan.pipelines = {
        {.stages = {{.group = {0}, .first_segment = 0, .last_segment = cut},
                    {.group = {1}, .first_segment = cut, .last_segment = table->segments}},
         .microbatches = 2}};
    const auto programs = program::LowerAll(graph, plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    const auto at = static_cast<size_t>(cut);
    EXPECT_EQ(sent((*programs)[0]),
              std::pair(table->forward_bytes[at], table->forward_messages[at]));
    EXPECT_EQ(sent((*programs)[1]),
              std::pair(table->backward_bytes[at], table->backward_messages[at]));
    EXPECT_GT(table->forward_bytes[at], 0);
  }
}

TEST(CostsTest, EveryParameterIsHeldWhereItsNodesAre) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const auto table = BuildSegmentTable(graph);
  ASSERT_TRUE(table.ok());
  const std::vector<size_t> cuts = {table->forward_bytes.size(), table->backward_bytes.size(),
                                    table->forward_messages.size(),
                                    table->backward_messages.size()};
  EXPECT_EQ(cuts, std::vector<size_t>(4, graph.segments.size() + 1));
  // Nothing crosses the ends.
  EXPECT_EQ(table->forward_bytes.front() + table->backward_bytes.front(), 0);
  EXPECT_EQ(table->forward_bytes.back() + table->backward_bytes.back(), 0);
  std::set<graph::ParameterId> seen;
  for (const auto& ids : table->parameters) {
    EXPECT_FALSE(ids.empty());
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    seen.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(seen.size(), graph.parameters.size());
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const int64_t elements = ElementCount(graph.parameters[p].shape);
    EXPECT_EQ(table->parameter_bytes[p], 4 * elements);
    EXPECT_EQ(table->state_bytes[p], 12 * elements);  // Master and two moments.
  }
}

TEST(CostsTest, BytesOfAStageGrowByWhatEachOfItsPartsNeeds) {
  const graph::Graph graph = LlamaGraph({.layers = 3});
  const auto table = BuildSegmentTable(graph);
  ASSERT_TRUE(table.ok());
  const auto bytes = [&](int in_flight, int microbatches, bool recompute) {
    return EstimateStageBytes(*table, 1, 3, in_flight, microbatches, recompute);
  };
  const int64_t input = table->forward_bytes[1];
  const int64_t stash = table->stash_bytes[1] + table->stash_bytes[2];
  int64_t state = 0;
  int64_t gradients = 0;
  for (const size_t segment : {size_t{1}, size_t{2}}) {
    for (const graph::ParameterId id : table->parameters[segment]) {
      state += table->state_bytes[static_cast<size_t>(id)];
      gradients += table->parameter_bytes[static_cast<size_t>(id)];
    }
  }
  const int64_t working = std::max(table->working_bytes[1], table->working_bytes[2]);
  EXPECT_EQ(bytes(1, 1, false), state + gradients + stash + input + working);
  EXPECT_EQ(bytes(3, 1, false) - bytes(1, 1, false), 2 * (stash + input));
  // One partial sum more for each bit of the microbatch's number.
  EXPECT_EQ(bytes(1, 3, false) - bytes(1, 1, false), gradients);
  EXPECT_EQ(bytes(1, 16, false) - bytes(1, 1, false), 4 * gradients);
  const int64_t largest = std::max(table->stash_bytes[1], table->stash_bytes[2]);
  EXPECT_EQ(bytes(5, 1, true), state + gradients + 5 * 2 * input + largest + working);
}

TEST(CostsTest, GraphsWithoutSegmentsAreErrors) {
  graph::Graph graph;
  EXPECT_EQ(BuildSegmentTable(graph).status().code(), StatusCode::kInvalidArgument);
  graph = LlamaGraph({.layers = 1});
  const int segments = static_cast<int>(graph.segments.size());
  graph.nodes.front().segment = segments;
  EXPECT_EQ(BuildSegmentTable(graph).status().code(), StatusCode::kInvalidArgument);
  graph.nodes.front().segment = -1;
  EXPECT_EQ(BuildSegmentTable(graph).status().code(), StatusCode::kInvalidArgument);
  graph.nodes.front().segment = 0;
  EXPECT_TRUE(BuildSegmentTable(graph).ok());
}

TEST(ClassesTest, WhateverIsMeasuredOfAWorkerTellsItApart) {
  const std::vector<std::function<void(program::WorkerProfile&)>> changes = {
      [](auto& w) { w.flops_per_second *= 1.01; },   [](auto& w) { w.bytes_per_second *= 1.01; },
      [](auto& w) { w.instruction_seconds = 1e-6; }, [](auto& w) { w.memory_bytes = 1 << 20; },
      [](auto& w) { w.seconds["update"] = 1e-9; },
  };
  for (const auto& change : changes) {
    ClusterProfile cluster = ClusterOf({1, 1, 1});
    EXPECT_EQ(ExactClasses(cluster).members, (std::vector<std::vector<int>>{{0, 1, 2}}));
    change(cluster.workers[1]);
    const WorkerClasses classes = ExactClasses(cluster);
    EXPECT_EQ(classes.members, (std::vector<std::vector<int>>{{0, 2}, {1}}));
    EXPECT_EQ(classes.class_of, (std::vector<int>{0, 1, 0}));
  }
}

TEST(ClassesTest, OneOddLinkTellsItsTwoEndsApart) {
  for (const bool latency : {false, true}) {
    for (const auto& [from, to] : std::vector<std::pair<int, int>>{{1, 3}, {3, 1}}) {
      ClusterProfile cluster = ClusterOf({1, 1, 1, 1, 1});
      comm::Link& link = cluster.links.At(from, to);
      (latency ? link.latency_seconds : link.bytes_per_second) *= 2;
      // The odd link's ends differ from the others, and from each other: one sends, one receives.
      EXPECT_EQ(ExactClasses(cluster).members,
                (std::vector<std::vector<int>>{{0, 2, 4}, {1}, {3}}));
    }
  }
  ClusterProfile pair = ClusterOf({1, 1, 1, 1});
  pair.links.At(0, 1).bytes_per_second = pair.links.At(1, 0).bytes_per_second = 1e6;
  EXPECT_EQ(ExactClasses(pair).members, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
}

TEST(ClassesTest, CoarseClassesPutAboutEqualWorkersTogether) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  const auto table = BuildSegmentTable(graph);
  ASSERT_TRUE(table.ok());
  ClusterProfile cluster = ClusterOf({1, 0.2, 1.001, 0.2002, 1});
  cluster.workers[4].memory_bytes = 1 << 20;
  std::vector<WorkerCosts> costs;
  for (const program::WorkerProfile& worker : cluster.workers) {
    costs.push_back(BuildWorkerCosts(graph, *table, worker));
  }
  const WorkerClasses classes = CoarseClasses(cluster, costs, 3);
  const std::set<std::vector<int>> found(classes.members.begin(), classes.members.end());
  EXPECT_EQ(found, (std::set<std::vector<int>>{{0, 2}, {1, 3}, {4}}));
  for (size_t c = 0; c < classes.members.size(); ++c) {
    for (const int rank : classes.members[c]) {
      EXPECT_EQ(classes.class_of[static_cast<size_t>(rank)], static_cast<int>(c));
    }
  }
  // Fewer are made of them when fewer are asked for; who has no limit of memory stays apart.
  EXPECT_EQ(CoarseClasses(cluster, costs, 2).members,
            (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4}}));
}

}  // namespace
}  // namespace heddle::planner
