/// \file
/// Goal: of a job whose stages are groups all that the groups run is measured or derived from
/// measured nodes of another size, and never from the rates of unlike nodes.
#include "engine/program/profiled_work.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/graph/models/model.h"
#include "engine/graph/operator.h"
#include "engine/graph/sharding/complete.h"
#include "engine/graph/sharding/localise.h"
#include "engine/graph/sharding/tensor_parallel.h"
#include "engine/program/profile.h"

namespace heddle::program {
namespace {

graph::Graph Model(graph::ModelFamily family) {
  graph::ModelConfig config;
  config.family = family;
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 8;
  auto graph = graph::BuildTrainingGraph(config, {.sequence_length = 16});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *std::move(graph);
}

graph::Cost CostOf(const graph::Graph& graph, const graph::Node& node) {
  std::vector<graph::TensorType> inputs;
  std::vector<graph::TensorType> outputs;
  for (const graph::TensorId input : node.inputs) {
    inputs.push_back(graph.tensor(input).type);
  }
  for (const graph::TensorId output : node.outputs) {
    outputs.push_back(graph.tensor(output).type);
  }
  return node.op->CostOf(inputs, outputs, node.attributes);
}

// What a node takes if its time is a straight line over its size.
double TrueSeconds(const graph::Graph& graph, const graph::Node& node) {
  const graph::Cost cost = CostOf(graph, node);
  return 1e-5 + 3e-10 * cost.flops + 2e-10 * cost.bytes;
}

WorkerProfile Measured(const ProfiledWork& work) {
  WorkerProfile profile;
  profile.flops_per_second = 1e30;  // Nothing is to be priced by it.
  profile.bytes_per_second = 1e30;
  for (const ProfiledWork::Part& part : work.parts) {
    profile.seconds[part.signature] = TrueSeconds(work.GraphOf(part), work.NodeOf(part));
  }
  return profile;
}

std::vector<graph::LocalGraph> MembersOf(const graph::Graph& graph, const std::vector<int>& units) {
  const auto layout = graph::TensorParallel(graph, units);
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  const auto sharded = graph::Complete(graph, *layout);
  EXPECT_TRUE(sharded.ok()) << sharded.status().ToString();
  std::vector<graph::LocalGraph> members;
  for (int position = 0; position < sharded->members; ++position) {
    members.push_back(graph::Localise(*sharded, position));
  }
  return members;
}

class ProfiledWorkTest : public ::testing::TestWithParam<graph::ModelFamily> {
 protected:
  const graph::Graph graph_ = Model(GetParam());
};

TEST_P(ProfiledWorkTest, OfOneWorkerIsANodeOfEachSignature) {
  const auto work = WorkOf(graph_);
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  std::set<std::string> there;
  for (const ProfiledWork::Part& part : work->parts) {
    EXPECT_EQ(part.graph, 0U);
    EXPECT_EQ(part.signature, graph::NodeSignature(graph_, graph_.node(part.node)));
    EXPECT_TRUE(there.insert(part.signature).second) << part.signature << " twice";
  }
  for (const graph::Node& node : graph_.nodes) {
    EXPECT_TRUE(there.contains(graph::NodeSignature(graph_, node))) << node.op->name();
  }
}

TEST_P(ProfiledWorkTest, HasAllThatTheMembersOfGroupsRun) {
  const std::vector<graph::Layout> layouts = {*graph::TensorParallel(graph_, {1, 1, 1}),
                                              *graph::TensorParallel(graph_, {5, 2, 1})};
  const auto work = WorkOf(graph_, layouts);
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  const WorkerProfile profile = Measured(*work);
  for (const std::vector<int>& units : {std::vector<int>{1, 1, 1}, {5, 2, 1}}) {
    for (const graph::LocalGraph& member : MembersOf(graph_, units)) {
      for (const graph::Step& step : member.order) {
        if (step.node >= 0) {
          const graph::Node& node = member.graph.node(step.node);
          EXPECT_TRUE(profile.seconds.contains(graph::NodeSignature(member.graph, node)))
              << graph::NodeSignature(member.graph, node);
        }
      }
    }
  }
}

TEST_P(ProfiledWorkTest, SharesThatWereNotMeasuredTakeTheTimeOfTheirSize) {
  const auto work = WorkOf(graph_, {*graph::TensorParallel(graph_, {1, 1})});
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  const WorkerProfile profile = Measured(*work);
  for (const std::vector<int>& units : {std::vector<int>{3, 1}, {4, 3, 1}, {6, 1, 1}}) {
    for (const graph::LocalGraph& member : MembersOf(graph_, units)) {
      for (const graph::Step& step : member.order) {
        if (step.node >= 0) {
          const graph::Node& node = member.graph.node(step.node);
          if (std::ranges::find(graph_.nodes, node.op, &graph::Node::op) == graph_.nodes.end()) {
            continue;  // A part of an operator, of which one size is measured.
          }
          const double expected = TrueSeconds(member.graph, node);
          EXPECT_NEAR(profile.Seconds(member.graph, node), expected, 1e-9 * expected)
              << graph::NodeSignature(member.graph, node);
        }
      }
    }
  }
}

// Without another size to go by, a share is taken to be in proportion.
TEST_P(ProfiledWorkTest, OneMeasuredSizeIsScaled) {
  const auto work = WorkOf(graph_);
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  const WorkerProfile profile = Measured(*work);
  const graph::LocalGraph member = MembersOf(graph_, {1, 1})[0];
  for (const graph::Step& step : member.order) {
    if (step.node >= 0 && member.graph.node(step.node).op->name() == "attention") {
      const graph::Node& whole = graph_.node(step.node);
      EXPECT_DOUBLE_EQ(profile.Seconds(member.graph, member.graph.node(step.node)),
                       TrueSeconds(graph_, whole) / 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         ProfiledWorkTest,
                         ::testing::Values(graph::ModelFamily::kLlama, graph::ModelFamily::kGpt2));

}  // namespace
}  // namespace heddle::program
