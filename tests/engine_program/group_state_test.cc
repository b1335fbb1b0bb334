// The state of groups as boxes, the memory of their Programs, and a Program followed by hand.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/program/lowering/footprint.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/pieces.h"
#include "engine/program/stage_graph.h"
#include "engine/program/state.h"
#include "tests/engine_program/graphs.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/program/group_plans.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::program {
namespace {

using graph::Placement;
using testing::ChainGraph;
using testing::GroupPlan;
using testing::RandomGraph;
using testing::RandomGroupPrograms;
using testing::TestSeeds;

const int kPlans = testing::Scaled(20, 40, 400);

int64_t Elements(const std::vector<Box>& boxes) {
  int64_t sum = 0;
  for (const Box& box : boxes) {
    sum += ElementCount(box.extent);
  }
  return sum;
}

/// Whether each element of the whole is in exactly one box.
bool Tile(const std::vector<Box>& boxes, const Shape& shape) {
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Intersect(boxes[i], boxes[j])) {
        return false;
      }
    }
  }
  return Elements(boxes) == ElementCount(shape);
}

TEST(GroupStateTest, EveryElementHasOneOwnerAmongItsHolders) {
  for (const uint64_t seed : TestSeeds(kPlans)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, DType::kF32);
    const auto [plan, programs] = RandomGroupPrograms(graph, seed);
    const StateLayout layout = LayoutOf(graph, plan);
    const StateLayout owned = OwnedLayout(graph, plan);
    std::map<std::pair<graph::ParameterId, StateRole>, std::vector<Box>> boxes;
    for (size_t rank = 0; rank < owned.size(); ++rank) {
      for (const StateBox& box : owned[rank]) {
        boxes[{box.parameter, box.role}].push_back(box.box);
        const bool held = std::ranges::any_of(layout[rank], [&](const StateBox& whole) {
          return whole.parameter == box.parameter && whole.role == box.role &&
                 heddle::Contains(whole.box, box.box);
        });
        EXPECT_TRUE(held) << "rank " << rank << " parameter " << box.parameter;
      }
      // The Program says the same of what is held.
      std::vector<graph::ParameterId> parameters;
      for (const StateBox& box : layout[rank]) {
        if (box.role == StateRole::kMaster) {
          parameters.push_back(box.parameter);
          EXPECT_EQ(HeldBox(programs[rank], graph, box.parameter), box.box);
        }
      }
      EXPECT_EQ(programs[rank].parameters, parameters);
    }
    EXPECT_EQ(boxes.size(), graph.parameters.size() * kStateRoles.size());
    for (const auto& [key, list] : boxes) {
      EXPECT_TRUE(Tile(list, graph.parameter(key.first).shape)) << key.first;
    }
  }
}

TEST(GroupStateTest, TransfersGiveEachMemberItsBoxes) {
  for (const uint64_t seed : TestSeeds(kPlans)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, DType::kF32);
    const Plan before = RandomGroupPrograms(graph, seed).plan;
    const Plan next = RandomGroupPrograms(graph, seed + 1000).plan;
    std::vector<HeldState> held;
    const StateLayout layout = LayoutOf(graph, before);
    for (size_t rank = 0; rank < layout.size(); ++rank) {
      held.push_back({.worker = before.workers[rank], .boxes = layout[rank]});
    }
    const std::vector<Transfer> transfers = PlanTransfers(graph, held, next);
    const StateLayout wanted = LayoutOf(graph, next);
    for (size_t rank = 0; rank < wanted.size(); ++rank) {
      std::vector<StateBox> given;
      for (const Transfer& transfer : transfers) {
        EXPECT_NE(transfer.source, "");
        if (transfer.target == next.workers[rank]) {
          given.push_back(
              {.parameter = transfer.parameter, .role = transfer.role, .box = transfer.box});
        }
      }
      for (const StateBox& want : wanted[rank]) {
        for (size_t h = 0; h < held.size(); ++h) {
          for (const StateBox& own : held[h].boxes) {
            const auto common = Intersect(own.box, want.box);
            if (held[h].worker == next.workers[rank] && own.parameter == want.parameter &&
                own.role == want.role && common) {
              given.push_back({.parameter = want.parameter, .role = want.role, .box = *common});
            }
          }
        }
      }
      const Status covered = CheckCoverage(graph, wanted[rank], given);
      EXPECT_TRUE(covered.ok()) << covered.ToString();
    }
  }
}

TEST(GroupStateTest, StateIsThatOfTheBoxes) {
  for (const uint64_t seed : TestSeeds(kPlans)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, seed % 2 == 0 ? DType::kF32 : DType::kBF16);
    const auto [plan, programs] = RandomGroupPrograms(graph, seed);
    const StateLayout layout = LayoutOf(graph, plan);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      int64_t bytes = 0;
      for (const StateBox& box : layout[rank]) {
        const bool copied =
            box.role == StateRole::kMaster &&
            graph.tensor(graph.parameter(box.parameter).compute).type.dtype == DType::kBF16;
        bytes += ElementCount(box.box.extent) * (copied ? 4 + 2 : 4);
      }
      EXPECT_EQ(StateBytes(graph, programs[rank]), bytes);
    }
  }
}

TEST(GroupStateTest, TheFootprintIsThatOfTheProgram) {
  for (const uint64_t seed : TestSeeds(kPlans)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, seed % 2 == 0 ? DType::kF32 : DType::kBF16);
    const auto [plan, programs] = RandomGroupPrograms(graph, seed);
    const auto footprint = Footprint::Create(graph, plan.determinism);
    ASSERT_TRUE(footprint.ok());
    for (const Program& program : programs) {
      const Result<int64_t> peak = footprint->PeakBytes(plan, program.rank);
      ASSERT_TRUE(peak.ok()) << peak.status().ToString();
      EXPECT_EQ(*peak, StateBytes(graph, program) + PeakSlotBytes(program))
          << "rank " << program.rank << "\n"
          << Describe(plan, graph);
    }
  }
}

/// A parameter of [8, 8] whose rows are held like this in some stages.
std::vector<HeldPiece> PiecesOfRows(const std::vector<std::pair<int64_t, int64_t>>& rows) {
  std::vector<std::optional<Box>> boxes;
  for (const auto& [begin, end] : rows) {
    boxes.emplace_back();
    if (begin < end) {
      boxes.back() = Box{.offset = {begin, 0}, .extent = {end - begin, 8}};
    }
  }
  return PiecesOf(boxes);
}

std::string Text(const std::vector<HeldPiece>& pieces) {
  std::string text;
  for (const HeldPiece& piece : pieces) {
    text += fmt::format("{}", ToString(piece.box));
    for (const int holder : piece.holders) {
      text += fmt::format(" {}", holder);
    }
    text += "; ";
  }
  return text;
}

TEST(PiecesTest, ArePartsThatEachHolderHasWholly) {
  EXPECT_EQ(Text(PiecesOfRows({{0, 8}, {0, 8}})), "[0:8, 0:8] 0 1; ");
  EXPECT_EQ(Text(PiecesOfRows({{4, 8}, {0, 0}, {0, 4}})), "[0:4, 0:8] 2; [4:8, 0:8] 0; ");
  EXPECT_EQ(Text(PiecesOfRows({{0, 4}, {2, 6}, {4, 8}})),
            "[0:2, 0:8] 0; [2:4, 0:8] 0 1; [4:6, 0:8] 1 2; [6:8, 0:8] 2; ");
  EXPECT_EQ(Text(PiecesOf({Box{.offset = {0, 0}, .extent = {4, 8}},
                           Box{.offset = {2, 2}, .extent = {6, 2}}})),
            "[0:2, 0:8] 0; [2:4, 0:2] 0; [2:4, 2:4] 0 1; [2:4, 4:8] 0; [4:8, 2:4] 1; ");
}

/// Members with three rows and one of the first layer, and columns of the head.
Plan HandPlan() {
  return GroupPlan({{.cuts = {{.units = {3, 1}}},
                     .tensors = {{"linear1.weight", {.placement = Placement::Shard(0)}},
                                 {"head.weight", {.placement = Placement::Shard(1)}}}}},
                   {{{3, 0}}}, 1);
}

// The second member of HandPlan.
constexpr const char* kMember = R"(generation 0 rank 1 of 2, relaxed
parameters 0 1 2
peers 0
piece p0 [0:8, 0:4]
piece p1.1 [3:4, 0:4]
piece p2.1 [0:8, 3:4]
e0 sum t7 -> t16 dim 0 sent 0:1 0:1 received 0:1 0:1
%0 tokens int32[1, 2] m0
%1 embedding fp32[1, 2, 4] m0
%2 linear1 fp32[1, 2, 1] m0
%3 logits fp32[1, 2, 8] m0
%4 logits.sum.1 fp32[1, 2, 8] m0
%5 targets int32[1, 2] m0
%6 loss fp64[] m0
%7 loss.1 fp32[1, 2] m0
%8 logits.grad fp32[1, 2, 8] m0
%9 linear1.grad fp32[1, 2, 1] m0
%10 head.weight.grad.0 fp32[8, 1] m0
%11 embedding.grad fp32[1, 2, 4] m0
%12 linear1.weight.grad.0 fp32[1, 4] m0
%13 embedding.weight.grad.0 fp32[8, 4] m0
%14 embedding.weight.grad.0 fp32[8, 4]
   0 load m0 -> %0
   1 run n0 embedding m0 %0, p -> %1
   2 run n1 linear m0 %1, p -> %2
   3 run n2 linear m0 %2, p -> %3
   4 exchange m0 e0 %3 -> %4 tag 0x2000000010000000 over 0,1
   5 free %3
   6 load m0 -> %5
   7 await %4
   8 run n3 cross_entropy{scale=0.5} m0 %4, %5 -> %6, %7
   9 free %6
  10 run n4 cross_entropy_gradient{scale=0.5} m0 %4, %5, %7 -> %8
  11 free %4
  12 free %5
  13 free %7
  14 run n5 linear_input_gradient m0 %8, p -> %9
  15 run n6 linear_weight_gradient m0 %8, %2 -> %10
  16 free %2
  17 free %8
  18 run n7 linear_input_gradient m0 %9, p -> %11
  19 run n8 linear_weight_gradient m0 %9, %1 -> %12
  20 free %1
  21 free %9
  22 run n9 embedding_weight_gradient{vocabulary=8} m0 %11, %0 -> %13
  23 free %0
  24 free %11
  25 reduce p0 embedding.weight %13 -> %14 tag 0x4000000000000000 over 0,1
  26 free %13
  27 vote
  28 update p0 embedding.weight %14
  29 free %14
  30 update p1.1 linear1.weight %12
  31 free %12
  32 update p2.1 head.weight %10
  33 free %10
vote at 27: norms p1.1=%12 p2.1=%10; losses
)";

TEST(GroupProgramTest, FollowedByHand) {
  const graph::Graph graph = ChainGraph(3);
  const Plan plan = HandPlan();
  const auto program = Lower(graph, plan, 1);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const auto local = MemberGraph(graph, plan, 1);
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  EXPECT_EQ(ToString(*program, *local), kMember);
}

// Workers compare it before a generation starts.
TEST(GroupProgramTest, TheHashDependsOnThePieceAndTheExchange) {
  const graph::Graph graph = ChainGraph(3);
  const auto program = Lower(graph, HandPlan(), 1);
  const auto local = MemberGraph(graph, HandPlan(), 1);
  ASSERT_TRUE(program.ok() && local.ok());
  const uint64_t hash = ProgramHash(*program, *local);
  EXPECT_EQ(hash, uint64_t{5187565383300693545U});
  const std::vector<std::function<void(Program&)>> changes = {
      [](Program& p) { p.pieces.back().box.extent[0] += 1; },
      [](Program& p) { p.pieces.back().index += 1; },
      [](Program& p) { p.exchanges.front().form = graph::ExchangeForm::kMax; },
      [](Program& p) { p.exchanges.front().received.front().end += 1; },
      [](Program& p) { p.exchanges.front().sent.front().end += 1; },
      [](Program& p) { p.exchanges.front().dim += 1; },
      [](Program& p) { p.vote.norms.back().piece += 1; },
      [](Program& p) { p.instructions[p.vote_index + 1].piece += 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Program changed = *program;
    changes[i](changed);
    EXPECT_NE(ProgramHash(changed, *local), hash) << i;
  }
}

TEST(GroupProgramTest, LayoutsThatDoNotAgreeAreRefused) {
  const graph::Graph graph = ChainGraph(3);
  Plan plan = HandPlan();
  const auto add = [&](int layout, int workers) {
    Pipeline pipeline{.first_microbatch = plan.microbatches(), .microbatches = 1};
    Stage stage{.first_segment = 0, .last_segment = 3, .layout = layout};
    for (int i = 0; i < workers; ++i) {
      stage.group.push_back(static_cast<int>(plan.workers.size()));
      plan.workers.push_back(fmt::format("w{}", plan.workers.size()));
    }
    pipeline.stages.push_back(stage);
    plan.pipelines.push_back(pipeline);
  };
  add(0, 2);
  EXPECT_TRUE(LowerAll(graph, plan).ok());
  add(-1, 1);
  EXPECT_EQ(LowerAll(graph, plan).status().message(),
            "plan: pipeline 0 stage 0 and pipeline 2 stage 0 cut parameter linear1.weight unlike: "
            "[0:3, 0:4] and [0:4, 0:4] overlap");
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_FALSE(Lower(graph, plan, rank).ok());
  }
}

}  // namespace
}  // namespace heddle::program
