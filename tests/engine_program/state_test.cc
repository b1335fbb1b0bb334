#include "engine/program/state.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine_program/graphs.h"

namespace heddle::program {
namespace {

using testing::ChainGraph;
using ::testing::IsEmpty;
using testing::PipelineOfCuts;
using testing::PlanOf;

// [8, 4] embedding and head, [4, 4] between: bytes of all three roles.
constexpr int64_t kTable = 8 * 4 * 4 * 3;
constexpr int64_t kLinear = 4 * 4 * 4 * 3;

std::vector<HeldState> HeldBy(const graph::Graph& graph, const Plan& plan) {
  std::vector<HeldState> held;
  const StateLayout layout = LayoutOf(graph, plan);
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    held.push_back({.worker = plan.workers[rank], .boxes = layout[rank]});
  }
  return held;
}

TEST(StateTest, RoleNamesAreRead) {
  for (const StateRole role : {StateRole::kMaster, StateRole::kExpAvg, StateRole::kExpAvgSq}) {
    const Result<StateRole> read = ParseStateRole(StateRoleName(role));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, role);
  }
  EXPECT_EQ(ParseStateRole("moment").status().code(), StatusCode::kInvalidArgument);
}

TEST(StateTest, HoldersHaveAllRolesAndOwnersWriteEachOnce) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 1)});
  const StateLayout layout = LayoutOf(graph, plan);
  EXPECT_EQ(layout[0].size(), 6U);  // Tied table, linear1.
  EXPECT_EQ(layout[1].size(), 6U);  // Tied table, linear2.
  const StateLayout owned = OwnedLayout(graph, plan);
  EXPECT_EQ(owned[0].size(), 6U);
  EXPECT_EQ(owned[1].size(), 3U);
  EXPECT_EQ(owned[1][2],
            (StateBox{.parameter = 2, .role = StateRole::kExpAvgSq, .box = WholeBox({4, 4})}));
}

TEST(StateTest, SamePlanMovesNothing) {
  const graph::Graph graph = ChainGraph(4);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 1)});
  EXPECT_THAT(PlanTransfers(graph, HeldBy(graph, plan), plan), IsEmpty());
}

TEST(StateTest, OnlyWhatAWorkerLacksIsMoved) {
  const graph::Graph graph = ChainGraph(4);
  const Plan before = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 1)});
  const Plan after = PlanOf(2, {PipelineOfCuts({0, 3, 4}, 0, 0, 1)});
  const std::vector<Transfer> transfers = PlanTransfers(graph, HeldBy(graph, before), after);
  EXPECT_EQ(TransferBytes(graph, transfers), kLinear);
  for (const Transfer& transfer : transfers) {
    EXPECT_EQ(transfer.parameter, 2);
    EXPECT_EQ(transfer.source, "w1");
    EXPECT_EQ(transfer.target, "w0");
  }
}

TEST(StateTest, WorkersAreKnownByNameNotByRank) {
  const graph::Graph graph = ChainGraph(4);
  const Plan before = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 1)});
  Plan after = before;
  std::swap(after.workers[0], after.workers[1]);
  std::swap(after.pipelines[0].stages[0].worker, after.pipelines[0].stages[1].worker);
  EXPECT_THAT(PlanTransfers(graph, HeldBy(graph, before), after), IsEmpty());
}

TEST(StateTest, WhatNobodyHoldsComesFromTheCheckpoint) {
  const graph::Graph graph = ChainGraph(4);
  const Plan before = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 1)});
  std::vector<HeldState> held = HeldBy(graph, before);
  held.erase(held.begin());
  const Plan after = SingleWorkerPlan("w1", 4, 1);
  const std::vector<Transfer> transfers = PlanTransfers(graph, held, after);
  EXPECT_EQ(TransferBytes(graph, transfers), kTable + kLinear);
  for (const Transfer& transfer : transfers) {
    EXPECT_EQ(transfer.source, "");
  }
}

TEST(StateTest, LoadIsSpreadOverTheSources) {
  const graph::Graph graph = ChainGraph(6);
  // Two replicas; two newcomers need everything: four tables and eight linear layers of state.
  const Plan before = PlanOf(2, {PipelineOfCuts({0, 6}, 0, 0, 1), PipelineOfCuts({0, 6}, 1, 1, 1)});
  const Plan after = PlanOf(4, {PipelineOfCuts({0, 6}, 0, 0, 1), PipelineOfCuts({0, 6}, 1, 1, 1),
                                PipelineOfCuts({0, 6}, 2, 2, 1), PipelineOfCuts({0, 6}, 3, 3, 1)});
  const std::vector<Transfer> transfers = PlanTransfers(graph, HeldBy(graph, before), after);
  std::map<std::string, int64_t> sent;
  for (const Transfer& transfer : transfers) {
    sent[transfer.source] += TransferBytes(graph, {transfer});
  }
  EXPECT_EQ(sent["w0"] + sent["w1"], 2 * (2 * kTable + 4 * kLinear));
  EXPECT_EQ(sent["w0"], sent["w1"]);
}

TEST(StateTest, SoleSourcesAreCountedBeforeReplicasChoose) {
  const graph::Graph graph = ChainGraph(4);
  // w0 alone holds the table; both hold linear1. A newcomer needs both: linear1 must come from w1.
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 1)});
  std::vector<HeldState> held = HeldBy(graph, plan);
  for (const StateBox& box : held[0].boxes) {
    if (box.parameter == 1) {
      held[1].boxes.push_back(box);
    }
  }
  Plan after = plan;
  after.workers = {"new", "w1"};
  std::map<std::string, int64_t> sent;
  for (const Transfer& transfer : PlanTransfers(graph, held, after)) {
    sent[transfer.source] += TransferBytes(graph, {transfer});
  }
  EXPECT_EQ(sent["w0"], kTable);
  EXPECT_EQ(sent["w1"], kLinear);
}

}  // namespace
}  // namespace heddle::program
