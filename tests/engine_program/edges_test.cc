// Bounds on both of their sides, texts word by word, and state in pieces of any shape.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/program/memory.h"
#include "engine/program/plan.h"
#include "engine/program/profile.h"
#include "engine/program/program.h"
#include "engine/program/stages.h"
#include "engine/program/state.h"
#include "tests/engine_program/graphs.h"
#include "tests/support/seed.h"

namespace heddle::program {
namespace {

using testing::ChainGraph;
using testing::PipelineOfCuts;
using testing::PlanOf;

std::string Refusal(const Plan& plan, int segments = 5) {
  return std::string(ValidatePlan(plan, segments).message());
}

Plan TwoPipelines() {
  return PlanOf(4, {PipelineOfCuts({0, 2, 5}, 0, 0, 3), PipelineOfCuts({0, 5}, 2, 3, 2)});
}

TEST(EdgesTest, AsManyMicrobatchesAsTagsHoldAndNoMore) {
  constexpr int kMax = 1 << 24;
  Plan plan = PlanOf(2, {PipelineOfCuts({0, 5}, 0, 0, kMax)});
  EXPECT_EQ(Refusal(plan), "");
  plan.pipelines[0].microbatches = kMax + 1;
  EXPECT_EQ(Refusal(plan), "plan: pipeline 0: 16777217 microbatches from 0 are out of range");
  plan.pipelines = {PipelineOfCuts({0, 5}, 0, 0, kMax - 1), PipelineOfCuts({0, 5}, 1, kMax - 1, 1)};
  EXPECT_EQ(Refusal(plan), "");
  plan.pipelines[1].microbatches = 2;
  EXPECT_EQ(Refusal(plan), "plan: more than 16777216 microbatches");
  plan.pipelines = {PipelineOfCuts({0, 5}, 0, 0, kMax), PipelineOfCuts({0, 5}, 1, kMax, 1)};
  EXPECT_EQ(Refusal(plan), "plan: pipeline 1: 1 microbatches from 16777216 are out of range");
  plan.pipelines[1].first_microbatch = -1;
  EXPECT_EQ(Refusal(plan), "plan: pipeline 1: 1 microbatches from -1 are out of range");
}

TEST(EdgesTest, AheadHasItsBoundsAtEveryStage) {
  constexpr int kMax = 1 << 24;
  Plan plan = PlanOf(4, {PipelineOfCuts({0, 2, 5}, 0, 0, 3)});
  plan.pipelines[0].stages[0].ahead = kMax;
  EXPECT_EQ(Refusal(plan), "");
  plan.pipelines[0].stages[0].ahead = kMax + 1;
  EXPECT_EQ(Refusal(plan),
            "plan: pipeline 0 stage 0: 16777217 microbatches ahead, not in 0..16777216");
  plan = PlanOf(4, {PipelineOfCuts({0, 2, 3, 5}, 0, 0, 9)});
  plan.pipelines[0].stages[1].ahead = 2;
  EXPECT_EQ(Refusal(plan),
            "plan: pipeline 0 stage 1: 2 microbatches ahead would wait for ever for stage 0, "
            "which has 0 ahead");
}

TEST(EdgesTest, ListsByWorkerHaveOneEntryEach) {
  EXPECT_EQ(Refusal(TwoPipelines(), 0), "plan: the graph has no segments");
  EXPECT_EQ(Refusal(TwoPipelines(), 4),
            "plan: pipeline 0 stage 1: segments [2, 5) do not continue at 2 of 4");
  Plan plan = TwoPipelines();
  plan.predicted_peak_bytes = {1, 2, 3, 4};
  plan.transports.assign(4, std::vector<std::string>(4, "tcp"));
  EXPECT_EQ(Refusal(plan), "");
  plan.transports[3].emplace_back("tcp");
  EXPECT_EQ(Refusal(plan), "plan: transports[3] has 5 entries for 4 workers");
  plan.transports.pop_back();
  EXPECT_EQ(Refusal(plan), "plan: transports has 3 rows for 4 workers");
  plan.predicted_peak_bytes.push_back(5);
  EXPECT_EQ(Refusal(plan), "plan: predicted_peak_bytes has 5 entries for 4 workers");
}

TEST(EdgesTest, DescriptionsCountAndNameWhatThereIs) {
  Plan plan = SingleWorkerPlan("alone", 1, 1);
  plan.predicted_step_seconds = 0.25;
  plan.determinism = Determinism::kRelaxed;
  EXPECT_EQ(Describe(plan, ChainGraph(2)),
            "generation 0: 1 worker, 1 pipeline, 1 microbatches, relaxed, 0.25 s a step predicted\n"
            "pipeline 0: 1 microbatch from 0: alone [embedding]\n");
  plan.workers = {"a", "b", "c"};
  plan.pipelines[0].stages[0] = {.group = {3}, .first_segment = 1, .last_segment = 4};
  plan.predicted_step_seconds = 0;
  EXPECT_EQ(Describe(plan, ChainGraph(2)),
            "generation 0: 3 workers, 1 pipeline, 1 microbatches, relaxed\n"
            "pipeline 0: 1 microbatch from 0: ? [head .. segment 3]\n"
            "idle: a, b, c\n");
  plan.pipelines[0].stages[0] = {.group = {-1}, .first_segment = -1, .last_segment = 0};
  EXPECT_EQ(Describe(plan, ChainGraph(2)).substr(0, 130),
            "generation 0: 3 workers, 1 pipeline, 1 microbatches, relaxed\n"
            "pipeline 0: 1 microbatch from 0: ? [segment -1]\n"
            "idle: a, b, c\n");
}

TEST(EdgesTest, StagesAndPlacesAreFound) {
  const Plan plan = TwoPipelines();
  for (int segment = -1; segment <= 5; ++segment) {
    const int expected = segment < 0 || segment >= 5 ? -1 : segment < 2 ? 0 : 1;
    EXPECT_EQ(StageOf(plan.pipelines[0], segment), expected) << segment;
  }
  const std::vector<std::pair<int, int>> places = {{0, 0}, {0, 1}, {1, 0}, {-1, -1}};
  for (int rank = 0; rank < 4; ++rank) {
    const Position found = PositionOf(plan, rank);
    EXPECT_EQ(std::pair(found.pipeline, found.stage), places[static_cast<size_t>(rank)]);
  }
  EXPECT_EQ(ParameterSegments(ChainGraph(4, true)),
            (std::vector<std::vector<int>>{{0, 3}, {1}, {2}}));
}

Program ProgramOf(const std::vector<int64_t>& bytes, const std::vector<Instruction>& list) {
  Program program;
  for (const int64_t size : bytes) {
    program.slots.push_back({.type = {.dtype = DType::kF32, .shape = {size / 4}}});
  }
  program.instructions = list;
  return program;
}

TEST(EdgesTest, WhatAReductionReadsTakesMemoryUntilTheVote) {
  const Instruction reduce{.code = Code::kReduce, .inputs = {0, 1}, .outputs = {2}};
  const Instruction free_read{.code = Code::kFree, .inputs = {1}};
  const auto write = [](SlotId slot) { return Instruction{.code = Code::kRun, .outputs = {slot}}; };
  const Instruction vote{.code = Code::kVote};
  const std::vector<int64_t> bytes = {100, 40, 8, 200, 400};
  EXPECT_EQ(PeakSlotBytes(ProgramOf(bytes, {})), 0);
  EXPECT_EQ(PeakSlotBytes(ProgramOf(bytes, {write(0), write(1)})), 140);
  EXPECT_EQ(PeakSlotBytes(ProgramOf(bytes, {write(0), write(1), free_read, write(3)})), 300);
  EXPECT_EQ(PeakSlotBytes(ProgramOf(bytes, {write(0), write(1), reduce, free_read, write(3)})),
            348);
  EXPECT_EQ(
      PeakSlotBytes(ProgramOf(bytes, {write(0), write(1), reduce, free_read, vote, write(3)})),
      308);
  // Values that are alive at the vote stay so.
  EXPECT_EQ(PeakSlotBytes(ProgramOf(bytes, {write(0), write(1), reduce, vote, write(4)})), 548);
}

// Slabs have 16 MiB, or what a larger piece takes; a freed piece serves an equal one again.
TEST(EdgesTest, SharedPiecesComeFromSlabs) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const auto exchange = [](SlotId slot) {
    return Instruction{.code = Code::kExchange, .outputs = {slot}};
  };
  const auto slabs = [&](const std::vector<int64_t>& mebibytes, const std::vector<int>& slots) {
    std::vector<int64_t> bytes;
    for (const int64_t each : mebibytes) {
      bytes.push_back(each * kMiB);
    }
    std::vector<Instruction> list;
    for (const int slot : slots) {
      list.push_back(slot < 0 ? Instruction{.code = Code::kFree, .inputs = {~slot}}
                              : exchange(slot));
    }
    const HostValues values = HostValuesOf(ProgramOf(bytes, list));
    EXPECT_EQ(values.own, 0);
    return std::pair(values.slabs / kMiB, values.pieces / kMiB);
  };
  EXPECT_EQ(slabs({1}, {0}), std::pair(int64_t{16}, int64_t{1}));
  EXPECT_EQ(slabs({20}, {0}), std::pair(int64_t{20}, int64_t{20}));
  EXPECT_EQ(slabs({8, 8}, {0, 1}), std::pair(int64_t{16}, int64_t{16}));
  EXPECT_EQ(slabs({8, 8, 1}, {0, 1, 2}), std::pair(int64_t{32}, int64_t{17}));
  EXPECT_EQ(slabs({8, 8, 8}, {0, 1, ~0, 2}), std::pair(int64_t{16}, int64_t{16}));
  EXPECT_EQ(slabs({8, 8, 4}, {0, 1, ~0, 2}), std::pair(int64_t{32}, int64_t{20}));
}

TEST(EdgesTest, PricesAreTheLargerOfArithmeticAndMemoryOrNothing) {
  const graph::Graph graph = ChainGraph(3);
  WorkerProfile profile;
  EXPECT_EQ(profile.Seconds(graph, graph.nodes[1]), 0);
  profile.flops_per_second = 1;
  const double flops = profile.Seconds(graph, graph.nodes[1]);
  EXPECT_GT(flops, 0);
  profile.flops_per_second = 0;
  profile.bytes_per_second = 1;
  const double bytes = profile.Seconds(graph, graph.nodes[1]);
  EXPECT_GT(bytes, 0);
  profile.flops_per_second = 4 * flops / bytes;
  EXPECT_DOUBLE_EQ(profile.Seconds(graph, graph.nodes[1]), bytes);
  profile.flops_per_second = flops / bytes / 4;
  EXPECT_DOUBLE_EQ(profile.Seconds(graph, graph.nodes[1]), 4 * bytes);
  profile.bytes_per_second = 1e-300;
  EXPECT_GT(profile.ByteSeconds("copy", 1), 0);
}

TEST(EdgesTest, BrokenProgramsCanBePrintedAndHashed) {
  const graph::Graph graph = ChainGraph(2);
  Program program;
  program.parameters = {-1, 2};
  program.slots = {{.tensor = -1, .type = {.dtype = DType::kF32, .shape = {2}}},
                   {.tensor = 999, .microbatch = 3, .type = {.dtype = DType::kF32, .shape = {}}}};
  program.instructions = {
      {.code = Code::kRun, .node = -1, .inputs = {-1, 7}, .outputs = {0}},
      {.code = Code::kRun, .node = 999, .microbatch = 0},
      {.code = Code::kUpdate, .inputs = {0}, .parameter = 2},
      {.code = Code::kUpdate, .parameter = 1},
      {.code = Code::kReduce, .tag = 255, .group = {0, 3}, .contributions = {{{1, 0}, {0, 2}}, {}}},
      {.code = Code::kSend, .inputs = {1}, .peer = 0},
      {.code = Code::kVote}};
  EXPECT_EQ(ToString(program, graph),
            "generation 0 rank 0 of 0, exact\nparameters -1 2\npeers\n"
            "%0 ? fp32[2]\n"
            "%1 ? fp32[] m3\n"
            "   0 run n-1 p, %7 -> %0\n"
            "   1 run n999 m0\n"
            "   2 update p2 %0\n"
            "   3 update p1 head.weight\n"
            "   4 reduce tag 0xff over 0,3 from {1:0 0:2}, {}\n"
            "   5 send %1 peer 0\n"
            "   6 vote\n"
            "vote at 0: norms; losses\n");
  Program other = program;
  other.parameters = {-1};
  EXPECT_NE(ProgramHash(program, graph), ProgramHash(other, graph));
}

TEST(EdgesTest, PlansAndProfilesAreWrittenLikeThis) {
  Plan plan = SingleWorkerPlan("a", 4, 2);
  plan.transports = {{""}};
  plan.predicted_peak_bytes = {7};
  EXPECT_EQ(PlanToJson(plan), R"({
  "determinism": "exact",
  "generation": 0,
  "pipelines": [
    {
      "first_microbatch": 0,
      "microbatches": 2,
      "stages": [
        {
          "ahead": 0,
          "first_segment": 0,
          "last_segment": 4,
          "recompute": false,
          "worker": 0
        }
      ]
    }
  ],
  "predicted_peak_bytes": [
    7
  ],
  "predicted_step_seconds": 0.0,
  "transports": [
    [
      ""
    ]
  ],
  "workers": [
    "a"
  ]
})");
  WorkerProfile profile;
  profile.worker = "\xff";
  EXPECT_EQ(ProfileToJson(profile),
            "{\n  \"bytes_per_second\": 0.0,\n  \"flops_per_second\": 0.0,\n"
            "  \"instruction_seconds\": 0.0,\n  \"memory_bytes\": 0,\n  \"process_bytes\": 0,\n"
            "  \"scratch_bytes\": 0,\n"
            "  \"seconds\": {},\n  \"worker\": \"\xef\xbf\xbd\"\n}");
}

std::string ProfileRefusal(const std::string& from, const std::string& to) {
  WorkerProfile profile;
  profile.worker = "w";
  profile.seconds = {{"fold", 0.5}};
  std::string text = ProfileToJson(profile);
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  return std::string(ProfileFromJson(text).status().message());
}

TEST(EdgesTest, NumbersAndTextsOfJsonHaveTheirBounds) {
  const std::string memory = "\"memory_bytes\": 0";
  EXPECT_EQ(ProfileRefusal(memory, "\"memory_bytes\": 9223372036854775807"), "");
  const std::string range =
      "profile.memory_bytes: expected an integer from 0 to 9223372036854775807, got ";
  EXPECT_EQ(ProfileRefusal(memory, "\"memory_bytes\": 9223372036854775808"),
            range + "9223372036854775808");
  EXPECT_EQ(ProfileRefusal(memory, "\"memory_bytes\": -1"), range + "-1");
  EXPECT_EQ(ProfileRefusal(memory, "\"memory_bytes\": true"), range + "true");
  EXPECT_EQ(ProfileRefusal(memory, "\"memory_bytes\": 1.0"), range + "1.0");
  EXPECT_EQ(ProfileRefusal("\"worker\": \"w\"", "\"worker\": null"),
            "profile.worker: expected a text, got null");
  EXPECT_EQ(ProfileRefusal("0.5", "-0.5"),
            "profile.seconds.fold: expected a number of at least 0, got -0.5");
  EXPECT_EQ(ProfileRefusal("0.5", "[]"),
            "profile.seconds.fold: expected a number of at least 0, got []");
  EXPECT_EQ(ProfileRefusal("0.5", "0"), "");
  EXPECT_EQ(ProfileRefusal("{\n    \"fold\": 0.5\n  }", "[]"),
            "profile.seconds: expected an object, got []");
  // What is shown ends after forty letters.
  const std::string forty(38, 'x');
  EXPECT_EQ(ProfileRefusal("0.5", "\"" + forty + "\""),
            "profile.seconds.fold: expected a number of at least 0, got \"" + forty + "\"");
  EXPECT_EQ(ProfileRefusal("0.5", "\"" + forty + "y\""),
            "profile.seconds.fold: expected a number of at least 0, got \"" + forty + "y…");
  // The first of two faults is told.
  EXPECT_EQ(ProfileRefusal("0.5", "-1, \"late\": -2"),
            "profile.seconds.fold: expected a number of at least 0, got -1");
}

TEST(EdgesTest, JsonMayBeSixteenDeep) {
  const auto nested = [](int depth) {
    return ProfileRefusal("0.5", std::string(static_cast<size_t>(depth), '[') +
                                     std::string(static_cast<size_t>(depth), ']'));
  };
  EXPECT_EQ(nested(14).substr(0, 21), "profile.seconds.fold:");
  EXPECT_EQ(nested(17), "profile: nested deeper than 16");
  EXPECT_EQ(ProfileRefusal("0.5", "0.5, \"fold\": 0.25"), "profile: key 'fold' appears twice");
  EXPECT_EQ(ProfileRefusal("0.5", "0.5, \"worker\": 1"), "");  // Of another object.
}

using Element = std::tuple<graph::ParameterId, StateRole, int64_t, int64_t>;

std::vector<Element> ElementsOf(graph::ParameterId parameter, StateRole role, const Box& box) {
  std::vector<Element> elements;
  for (int64_t i = box.offset[0]; i < box.offset[0] + box.extent[0]; ++i) {
    for (int64_t j = box.offset[1]; j < box.offset[1] + box.extent[1]; ++j) {
      elements.emplace_back(parameter, role, i, j);
    }
  }
  return elements;
}

TEST(EdgesTest, PiecesOfAnyShapeAreCompletedElementByElement) {
  Random random(testing::TestSeed());
  const graph::Graph graph = ChainGraph(3);
  for (int round = 0; round < 100; ++round) {
    // Random rectangles that may overlap, at four workers of which two are in the next plan.
    std::vector<HeldState> held;
    std::map<std::string, std::set<Element>> has;
    for (int i = 0; i < 4; ++i) {
      held.push_back({.worker = fmt::format("w{}", i), .boxes = {}});
      for (int n = static_cast<int>(random.Between(0, 6)); n > 0; --n) {
        StateBox box{.parameter = static_cast<graph::ParameterId>(random.Below(3)),
                     .role = static_cast<StateRole>(random.Below(3)),
                     .box = {}};
        for (const int64_t extent : graph.parameter(box.parameter).shape) {
          const int64_t first = random.Between(0, extent - 1);
          box.box.offset.push_back(first);
          box.box.extent.push_back(random.Between(1, extent - first));
        }
        for (const Element& element : ElementsOf(box.parameter, box.role, box.box)) {
          has[held.back().worker].insert(element);
        }
        held.back().boxes.push_back(box);
      }
    }
    Plan next = PlanOf(2, {PipelineOfCuts({0, 1, 3}, 0, 0, 1)});
    next.workers = {"w2", "new"};
    std::map<std::string, std::set<Element>> got = {{"w2", has["w2"]}};
    int64_t moved = 0;
    const std::vector<Transfer> transfers = PlanTransfers(graph, held, next);
    for (const Transfer& transfer : transfers) {
      for (const Element& element : ElementsOf(transfer.parameter, transfer.role, transfer.box)) {
        ++moved;
        EXPECT_TRUE(got[transfer.target].insert(element).second);  // Nothing twice.
        int holders = 0;
        for (const auto& [worker, elements] : has) {
          holders += elements.contains(element) ? 1 : 0;
        }
        EXPECT_EQ(transfer.source.empty(), holders == 0);
        EXPECT_TRUE(holders == 0 || has[transfer.source].contains(element));
        EXPECT_NE(transfer.source, transfer.target);
      }
    }
    EXPECT_EQ(TransferBytes(graph, transfers), 4 * moved);
    const StateLayout layout = LayoutOf(graph, next);
    for (size_t rank = 0; rank < 2; ++rank) {
      for (const StateBox& box : layout[rank]) {
        for (const Element& element : ElementsOf(box.parameter, box.role, box.box)) {
          EXPECT_TRUE(got[next.workers[rank]].contains(element));
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::program
