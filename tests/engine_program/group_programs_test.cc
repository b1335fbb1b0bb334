// Programs of plans with groups compute what one device does: the reference interpreter runs them in
// doubles (tests/support/program/program_interpreter.h).
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/graph/sharding/tensor_parallel.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/verify/verify.h"
#include "tests/support/graph/groups.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/program/group_plans.h"
#include "tests/support/program/program_interpreter.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::program {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GroupCase;
using testing::GroupCases;
using ::testing::HasSubstr;
using testing::RandomGraph;
using testing::SmallModel;
using testing::SmallTrainingGraph;
using testing::TestSeed;
using testing::TestSeeds;

using Programs = std::vector<Program>;

/// Why the plan's Programs do not compute what one device does, or are refused; empty: they do.
std::string Violation(const graph::Graph& graph,
                      const Plan& plan,
                      const Programs& programs,
                      uint64_t seed) {
  Random random(seed);
  const testing::DenseStep step = testing::RandomStep(graph, plan.microbatches(), random);
  const std::string difference = Difference(
      graph, testing::RunPrograms(graph, testing::MemberGraphs(graph, plan), programs, step),
      testing::RunOneDevice(graph, step));
  for (const VerifyScope scope : {VerifyScope::kEveryWorker, VerifyScope::kEveryClass}) {
    if (const Status verified = Verify(graph, plan, programs, scope); !verified.ok()) {
      return difference + "; " + verified.ToString();
    }
  }
  return difference;
}

/// A graph of the generator, or a model: of five seeds one is Llama's and one GPT-2's.
graph::Graph AnyGraph(uint64_t seed) {
  const bool tied = seed % 2 == 0;
  switch (seed % 5) {
    case 0:
      return SmallTrainingGraph(
          SmallModel(graph::ModelFamily::kLlama, int64_t{1} << seed / 5 % 4, tied));
    case 1:
      return SmallTrainingGraph(SmallModel(graph::ModelFamily::kGpt2, 8, tied));
    default:
      return RandomGraph(seed, DType::kF64);
  }
}

TEST(GroupProgramsTest, RandomPlansComputeWhatOneDeviceDoes) {
  std::map<graph::ExchangeForm, int> forms;
  int several_pieces = 0;
  int without_share = 0;
  for (const uint64_t seed : TestSeeds(testing::Scaled(40, 250, 2000))) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = AnyGraph(seed);
    const auto [plan, programs] = testing::RandomGroupPrograms(graph, seed);
    ASSERT_EQ(Violation(graph, plan, programs, seed), "")
        << Describe(plan, graph) << PlanToJson(plan);
    for (const Program& program : programs) {
      for (const graph::Exchange& exchange : program.exchanges) {
        ++forms[exchange.form];
      }
      for (const Piece& piece : program.pieces) {
        several_pieces += piece.box != HeldBox(program, graph, piece.parameter) ? 1 : 0;
      }
      without_share += program.parameters.empty() ? 1 : 0;
    }
  }
  // The plans are worth it: every form, boxes of several pieces, members without a parameter.
  EXPECT_EQ(forms.size(), 6U);
  EXPECT_GT(several_pieces, 0);
  EXPECT_GT(without_share, 0);
}

/// What is sent, in runs of the positions of [2, 5, 16].
int64_t BytesSent(const std::vector<Program>& programs) {
  int64_t bytes = 0;
  for (const Program& program : programs) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.code == Code::kSend) {
        const Slot& slot = program.slots[static_cast<size_t>(instruction.inputs[0])];
        EXPECT_THAT(slot.type.shape, ElementsAre(2, _, 16));
        bytes += slot.type.bytes();
      }
    }
  }
  return bytes;
}

// Between groups of any sizes, as between two workers.
TEST(GroupProgramsTest, EachElementCrossesAnEdgeOnce) {
  const graph::ModelConfig config = SmallModel(graph::ModelFamily::kLlama, 8, /*tied=*/false);
  const graph::Graph graph = SmallTrainingGraph(config);
  // Groups by the units of their members; none: one worker.
  const auto sent = [&](const std::vector<std::vector<int>>& groups) {
    std::vector<graph::Layout> layouts;
    std::vector<testing::StageCut> stages;
    for (const std::vector<int>& units : groups) {
      int layout = -1;
      if (!units.empty()) {
        layout = static_cast<int>(layouts.size());
        layouts.push_back(*graph::TensorParallel(graph, units));
      }
      stages.push_back({.last_segment = 2 * static_cast<int>(stages.size()) + 2, .layout = layout});
    }
    const Plan plan = testing::GroupPlan(layouts, {stages}, 2);
    const Result<Programs> programs = LowerAll(graph, plan);
    EXPECT_TRUE(programs.ok()) << programs.status().ToString();
    EXPECT_EQ(Violation(graph, plan, *programs, TestSeed()), "") << Describe(plan, graph);
    return BytesSent(*programs);
  };
  const int64_t between_workers = sent({{}, {}, {}});
  EXPECT_EQ(between_workers, 2 * 2 * 2 * (2 * 5 * 16 * 8));  // [2, 5, 16] in fp64.
  const std::vector<std::vector<int>> kinds = {{}, {1, 1}, {4, 3, 1}, {1, 1, 1, 1}};
  for (const std::vector<int>& outer : kinds) {
    for (const std::vector<int>& inner : kinds) {
      EXPECT_EQ(sent({outer, inner, outer}), between_workers)
          << outer.size() << " and " << inner.size();
    }
  }
}

// Layouts of unlike pipelines rarely agree; those that do not are refused by name.
TEST(GroupProgramsTest, AnyPlanIsLoweredOrRefused) {
  int lowered = 0;
  int refused = 0;
  for (const uint64_t seed : TestSeeds(60)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, DType::kF64);
    const Plan plan = testing::RandomGroupPlan(seed, graph);
    const Result<Programs> programs = LowerAll(graph, plan);
    if (programs.ok()) {
      EXPECT_EQ(Violation(graph, plan, *programs, seed), "") << Describe(plan, graph);
      ++lowered;
    } else {
      EXPECT_THAT(programs.status().message(),
                  AllOf(HasSubstr("cut parameter"), HasSubstr("unlike")));
      ++refused;
    }
  }
  EXPECT_GT(lowered, 0);
  EXPECT_GT(refused, 0);
}

TEST(GroupProgramsTest, ValidationComputesTheLossOfOneDevice) {
  for (const GroupCase& one : GroupCases()) {
    const auto graph = graph::BuildEvaluationGraph(
        one.config, {.microbatch_size = 2, .sequence_length = 5, .compute = DType::kF64});
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    // The layout is made for the graph of training, which has more tensors.
    const Plan plan = testing::GroupPlan(
        {testing::LayoutOf(SmallTrainingGraph(one.config), one.config, one.parallel)},
        {{{3, 0}, {6, 0}}, {{6, 0}}}, 2);
    const Result<Programs> programs = LowerAll(*graph, plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    EXPECT_EQ(Violation(*graph, plan, *programs, TestSeed()), "") << one.name;
  }
}

/// The most bytes of values that a member of a group of `members` has, of a model of eight layers.
int64_t PeakOfGroup(int members, bool divides_sequence) {
  graph::ModelConfig config;
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_hidden_layers = 8;
  config.num_attention_heads = config.num_key_value_heads = 8;
  const auto graph = graph::BuildTrainingGraph(config, {.sequence_length = 256});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  const auto layout = graph::TensorParallel(
      *graph, std::vector<int>(static_cast<size_t>(members), 1), divides_sequence);
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  const Plan plan = testing::GroupPlan({*layout}, {{{static_cast<int>(graph->segments.size()), 0}}},
                                       /*microbatches=*/1);
  const Result<Programs> programs = LowerAll(*graph, plan);
  EXPECT_TRUE(programs.ok()) << programs.status().ToString();
  EXPECT_EQ(Verify(*graph, plan, *programs).ToString(), Status::Ok().ToString());
  return PeakSlotBytes(programs->front());
}

// What is gathered for a linear layer is gathered again for its weights' gradient, not kept.
TEST(GroupProgramsTest, ADividedSequenceTakesLessMemory) {
  const int64_t whole = PeakOfGroup(4, false);
  const int64_t divided = PeakOfGroup(4, true);
  EXPECT_LE(static_cast<double>(divided), 0.7 * static_cast<double>(whole));
}

TEST(GroupProgramsTest, ModelsComputeWhatOneDeviceDoes) {
  for (const GroupCase& one : GroupCases()) {
    const graph::Graph graph = SmallTrainingGraph(one.config);
    using Stages = std::vector<testing::StageCut>;
    for (const Stages& stages : {Stages{{6, 0}}, {{3, 0}, {6, 0}}, {{1, 0}, {4, 0}, {6, 0}}}) {
      for (const bool recompute : {false, true}) {
        Plan plan = testing::GroupPlan({testing::LayoutOf(graph, one.config, one.parallel)},
                                       {stages, {{6, 0}}}, 2);
        for (Pipeline& pipeline : plan.pipelines) {
          for (Stage& stage : pipeline.stages) {
            stage.recompute = recompute;
          }
        }
        const Result<Programs> programs = LowerAll(graph, plan);
        ASSERT_TRUE(programs.ok()) << programs.status().ToString();
        EXPECT_EQ(Violation(graph, plan, *programs, TestSeed()), "")
            << one.name << Describe(plan, graph);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::program
