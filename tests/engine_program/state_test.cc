#include "engine/program/state.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/engine_program/graphs.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"

namespace heddle::program {
namespace {

using testing::ChainGraph;
using ::testing::Contains;
using ::testing::HasSubstr;
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

TEST(StateTest, HoldersHaveAllRolesAndOwnersWriteEachOnce) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 1)});
  const StateLayout layout = LayoutOf(graph, plan);
  EXPECT_EQ(layout[0].size(), 6U);  // Tied table, linear1.
  EXPECT_EQ(layout[1].size(), 6U);  // Tied table, linear2.
  const StateLayout owned = OwnedLayout(graph, plan);
  EXPECT_EQ(owned[0].size() + owned[1].size(), 9U);
  for (int32_t role = 0; role < 3; ++role) {
    const StateBox linear{
        .parameter = 2, .role = static_cast<StateRole>(role), .box = WholeBox({4, 4})};
    EXPECT_THAT(owned[1], Contains(linear));
  }
}

// Elements that each rank writes.
std::vector<double> Written(const StateLayout& owned) {
  std::vector<double> written;
  for (const std::vector<StateBox>& boxes : owned) {
    double elements = 0;
    for (const StateBox& box : boxes) {
      elements += static_cast<double>(ElementCount(box.box.extent));
    }
    written.push_back(elements);
  }
  return written;
}

TEST(StateTest, RandomPlansWriteEveryBoxOnceByOneOfItsHolders) {
  const uint64_t seed = testing::TestSeed();
  for (uint64_t round = 0; round < 200; ++round) {
    Random random(StreamKey(seed, std::to_string(round)));
    const int segments = static_cast<int>(random.Between(2, 9));
    const graph::Graph graph = ChainGraph(segments, random.Below(2) == 0);
    const Plan plan = testing::RandomPlan(random.Next(), segments);
    const StateLayout layout = LayoutOf(graph, plan);
    const StateLayout owned = OwnedLayout(graph, plan);
    std::map<std::pair<graph::ParameterId, StateRole>, int> writers;
    for (size_t rank = 0; rank < owned.size(); ++rank) {
      for (const StateBox& box : owned[rank]) {
        EXPECT_THAT(layout[rank], Contains(box)) << "round " << round;
        ++writers[{box.parameter, box.role}];
      }
    }
    EXPECT_EQ(writers.size(), graph.parameters.size() * 3) << "round " << round;
    for (const auto& [key, count] : writers) {
      EXPECT_EQ(count, 1) << "round " << round << " parameter " << key.first;
    }
    EXPECT_EQ(OwnedLayout(graph, *PlanFromJson(PlanToJson(plan))), owned)
        << "whoever reads the plan gets the same owners";
  }
}

// Where every worker holds everything, the one that ends last is at most by one box a worker later
// than if all ended together: greedy scheduling on machines of unlike speed.
TEST(StateTest, ReplicasShareTheWritingBySpeed) {
  const uint64_t seed = testing::TestSeed();
  for (uint64_t round = 0; round < 100; ++round) {
    Random random(StreamKey(seed, std::to_string(round)));
    const int segments = static_cast<int>(random.Between(2, 40));
    const auto replicas = static_cast<int>(random.Between(1, 6));
    const graph::Graph graph = ChainGraph(segments);
    std::vector<Pipeline> pipelines;
    std::vector<double> speeds;
    int microbatches = 0;
    for (int rank = 0; rank < replicas; ++rank) {
      const auto share = static_cast<int>(random.Between(1, 8));
      pipelines.push_back(PipelineOfCuts({0, segments}, rank, microbatches, share));
      speeds.push_back(share);
      microbatches += share;
    }
    const std::vector<double> written = Written(OwnedLayout(graph, PlanOf(replicas, pipelines)));
    double elements = 0;
    double speed = 0;
    double last = 0;
    for (size_t rank = 0; rank < written.size(); ++rank) {
      elements += written[rank];
      speed += speeds[rank];
      last = std::max(last, written[rank] / speeds[rank]);
    }
    constexpr double kLargest = 8 * 4;
    EXPECT_LE(last, 1.01 * (elements + replicas * kLargest) / speed)
        << "round " << round << " of seed " << seed;
  }
}

TEST(StateTest, TheFasterReplicaWritesMore) {
  const graph::Graph graph = ChainGraph(30);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 30}, 0, 0, 1), PipelineOfCuts({0, 30}, 1, 1, 3)});
  const std::vector<double> written = Written(OwnedLayout(graph, plan));
  EXPECT_NEAR(written[1] / written[0], 3, 0.3);
}

// The first stage alone holds two layers; the tied weight, which is larger, is written by the other.
TEST(StateTest, WhatHasOneHolderIsCountedBeforeOthersChoose) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  const StateLayout owned = OwnedLayout(graph, PlanOf(2, {PipelineOfCuts({0, 3, 4}, 0, 0, 1)}));
  const auto is_tied = [](const StateBox& box) { return box.parameter == 0; };
  EXPECT_EQ(std::ranges::count_if(owned[0], is_tied), 0);
  EXPECT_EQ(std::ranges::count_if(owned[1], is_tied), 3);
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
  std::swap(after.pipelines[0].stages[0].group, after.pipelines[0].stages[1].group);
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

// By elements: a parameter of which something comes is not for that all there.
TEST(StateTest, EveryElementIsGivenOnceAndToWhomItIsFor) {
  const graph::Graph graph = ChainGraph(3);
  const auto box = [](graph::ParameterId parameter, int64_t row, int64_t rows,
                      StateRole role = StateRole::kMaster) {
    return StateBox{.parameter = parameter, .role = role, .box = {{row, 0}, {rows, 4}}};
  };
  const std::vector<StateBox> wanted = {box(1, 0, 4), box(1, 0, 4, StateRole::kExpAvg)};
  const auto refusal = [&](std::vector<StateBox> given) {
    given.push_back(wanted[1]);
    return std::string(CheckCoverage(graph, wanted, given).message());
  };
  const std::string twice =
      "elements of master of linear1.weight {} would be given twice, or to whom they are not for";
  EXPECT_EQ(refusal({box(1, 0, 4)}), "");
  EXPECT_EQ(refusal({box(1, 3, 1), box(1, 0, 3)}), "");
  EXPECT_EQ(refusal({box(1, 0, 3)}),
            "nobody gives master of linear1.weight " + ToString(box(1, 3, 1).box));
  EXPECT_EQ(refusal({box(1, 0, 2), box(1, 3, 1)}),
            "nobody gives master of linear1.weight " + ToString(box(1, 2, 1).box));
  EXPECT_EQ(refusal({box(1, 0, 3), box(1, 2, 2)}),
            fmt::format(fmt::runtime(twice), ToString(box(1, 2, 2).box)));
  EXPECT_EQ(refusal({box(1, 0, 4), box(1, 0, 4)}),
            fmt::format(fmt::runtime(twice), ToString(box(1, 0, 4).box)));
  EXPECT_THAT(refusal({box(1, 0, 4), box(0, 0, 1)}), HasSubstr("to whom they are not for"));
}

}  // namespace
}  // namespace heddle::program
