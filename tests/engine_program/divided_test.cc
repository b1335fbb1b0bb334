// Plans that divide the optimizer: their Programs compute what one device does, their state is kept
// once, and planted faults are refused.
#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/program/lowering/footprint.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/slices.h"
#include "engine/program/state.h"
#include "engine/program/verify/verify.h"
#include "tests/engine_program/example_programs.h"
#include "tests/engine_program/group_examples.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/program/group_plans.h"
#include "tests/support/program/program_interpreter.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::program {
namespace {

using testing::At;
using testing::Find;
using ::testing::HasSubstr;
using testing::Insert;
using testing::Programs;
using testing::RandomGraph;
using testing::Remove;

/// Why the Programs do not compute what one device does, or are refused; empty: they do.
std::string Violation(const graph::Graph& graph,
                      const Plan& plan,
                      const Programs& programs,
                      uint64_t seed) {
  Random random(seed);
  const testing::DenseStep step = testing::RandomStep(graph, plan.microbatches(), random);
  const std::string difference = Difference(
      graph, testing::RunPrograms(graph, testing::MemberGraphs(graph, plan), programs, step),
      testing::RunOneDevice(graph, step));
  const Status verified = Verify(graph, plan, programs);
  return verified.ok() ? difference : difference + "; " + verified.ToString();
}

/// Bytes of masters and moments, of all workers: each element of a matrix is kept once.
void ExpectKeptOnce(const graph::Graph& graph, const Plan& plan, const Programs& programs) {
  std::vector<StateBox> all;
  const StateLayout layout = LayoutOf(graph, plan);
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    for (const StateBox& box : layout[rank]) {
      if (box.box.extent.size() > 1) {
        all.push_back(box);
      }
    }
  }
  std::vector<StateBox> wanted;
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    for (const StateRole role : kStateRoles) {
      if (graph.parameters[p].shape.size() > 1) {
        wanted.push_back({.parameter = static_cast<graph::ParameterId>(p),
                          .role = role,
                          .box = WholeBox(graph.parameters[p].shape)});
      }
    }
  }
  EXPECT_EQ(CheckCoverage(graph, wanted, all).message(), "");
  auto footprint = Footprint::Create(graph, plan.determinism);
  ASSERT_TRUE(footprint.ok());
  for (const Program& program : programs) {
    const Result<int64_t> peak = footprint->PeakBytes(plan, program.rank);
    ASSERT_TRUE(peak.ok()) << peak.status().ToString();
    EXPECT_EQ(*peak, program.instructions.size() == 1
                         ? 0
                         : StateBytes(graph, program) + PeakSlotBytes(program));
  }
}

/// A search knows of a stage how many pipelines there are, and not which rows its worker keeps. Returns
/// the stages for which it expects as much as they take; it never expects less.
int ExpectEnoughForEachStage(const graph::Graph& graph, const Plan& plan) {
  auto footprint = Footprint::Create(graph, plan.determinism, /*divides_optimizer=*/true);
  EXPECT_TRUE(footprint.ok());
  int exact = 0;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const Stage& stage = pipeline.stages[s];
      const int64_t expected =
          footprint->PeakBytes({.first_segment = stage.first_segment,
                                .last_segment = stage.last_segment,
                                .recompute = stage.recompute,
                                .warm_up = pipeline.WarmUp(s),
                                .first_microbatch = pipeline.first_microbatch,
                                .microbatches = pipeline.microbatches,
                                .pipelines = static_cast<int>(plan.pipelines.size())});
      const Result<int64_t> peak = footprint->PeakBytes(plan, stage.worker());
      EXPECT_TRUE(peak.ok() && *peak <= expected) << *peak << " of " << expected;
      exact += peak.ok() && *peak == expected ? 1 : 0;
    }
  }
  return exact;
}

TEST(DividedTest, RandomPlansComputeWhatOneDeviceDoes) {
  int divided = 0;
  int nothing_kept = 0;
  int unread = 0;
  int exact = 0;  // Stages of several pipelines.
  for (const uint64_t seed : testing::TestSeeds(testing::Scaled(40, 150, 1000))) {
    HEDDLE_TRACE_SEED(seed);
    Random random(seed);
    graph::Graph graph = RandomGraph(seed, DType::kF64);
    graph.optimizer.slices = random.Between(2, 70);
    Plan plan = testing::RandomPlan(seed, static_cast<int>(graph.segments.size()));
    if (seed % 3 == 0) {
      plan = testing::RandomGroupPrograms(graph, seed).plan;
    } else if (seed % 3 == 1) {
      plan.determinism = Determinism::kRelaxed;
    }
    plan.divides_optimizer = true;
    const Result<Programs> programs = LowerAll(graph, plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    ASSERT_EQ(Violation(graph, plan, *programs, seed), "")
        << Describe(plan, graph) << PlanToJson(plan);
    ExpectKeptOnce(graph, plan, *programs);
    if (plan.layouts.empty() && plan.pipelines.size() > 1) {
      exact += ExpectEnoughForEachStage(graph, plan);
    }
    ASSERT_FALSE(HasFailure()) << Describe(plan, graph) << PlanToJson(plan);
    for (const Program& program : *programs) {
      for (const Piece& piece : program.pieces) {
        divided += piece.kept.has_value() ? 1 : 0;
        nothing_kept += ElementCount(KeptBox(piece).extent) == 0 ? 1 : 0;
      }
      const Instruction& last = program.instructions[std::max<size_t>(program.vote_index, 1) - 1];
      unread += last.code == Code::kAwait && last.parameter >= 0 ? 1 : 0;
    }
  }
  // The plans are worth it.
  EXPECT_GT(divided, 0);
  EXPECT_GT(nothing_kept, 0);
  EXPECT_GT(exact, 0);
  EXPECT_GT(unread, 0) << "a member that gathers what it does not read";
}

/// ChainGraph(4) on two pipelines of one worker and of two, whose holders divide every matrix.
struct Example {
  graph::Graph graph = testing::ChainGraph(4);
  Plan plan = testing::ExamplePlan();
  Programs programs = {};
};

Example MakeExample() {
  Example example;
  example.graph.optimizer.slices = 4;
  example.plan.divides_optimizer = true;
  Result<Programs> programs = LowerAll(example.graph, example.plan);
  EXPECT_TRUE(programs.ok()) << programs.status().ToString();
  example.programs = *std::move(programs);
  return example;
}

TEST(DividedTest, AHolderKeepsARunOfSlices) {
  const Example example = MakeExample();
  const Piece& first = example.programs[0].pieces.front();
  const Piece& other = example.programs[2].pieces.front();
  EXPECT_EQ(first.box, WholeBox({8, 4}));
  EXPECT_EQ(KeptBox(first), (Box{.offset = {0, 0}, .extent = {4, 4}}));
  EXPECT_EQ(KeptBox(other), (Box{.offset = {4, 0}, .extent = {4, 4}}));
  // All gathers come first, and each is awaited before its parameter is read.
  EXPECT_EQ(At(const_cast<Program&>(example.programs[0]), Code::kGather).rows,
            (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(example.programs[0].instructions.front().code, Code::kGather);
  EXPECT_EQ(Verify(example.graph, example.plan, example.programs).message(), "");
}

TEST(DividedTest, KeptPiecesAreCountedFromParameterToParameter) {
  Example example = MakeExample();
  EXPECT_EQ(FirstKeptPieces(example.graph, example.plan), (std::vector<int32_t>{0, 2, 4, 6, 8}));
  example.plan.divides_optimizer = false;
  EXPECT_EQ(FirstKeptPieces(example.graph, example.plan), (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(DividedTest, AWorkersStateIsWhatItKeepsAndCopiesOfTheRest) {
  Example example = MakeExample();
  const StateLayout kept = LayoutOf(example.graph, example.plan);
  example.plan.divides_optimizer = false;
  const StateLayout held = LayoutOf(example.graph, example.plan);
  const auto elements = [](const std::vector<StateBox>& boxes) {
    int64_t sum = 0;
    for (const StateBox& box : boxes) {
      sum += ElementCount(box.box.extent);
    }
    return sum;
  };
  const int64_t size = SizeOf(example.graph.master_dtype());
  int64_t all_copied = 0;
  for (size_t rank = 0; rank < example.programs.size(); ++rank) {
    // Of the three roles; a compute copy is of the master's type, and is there once.
    const int64_t copied = (elements(held[rank]) - elements(kept[rank])) / 3;
    all_copied += copied;
    EXPECT_EQ(StateBytes(example.graph, example.programs[rank]),
              (elements(kept[rank]) + copied) * size)
        << rank;
  }
  EXPECT_GT(all_copied, 0);
}

TEST(DividedTest, SlicesAreTheSameWhoeverKeepsThem) {
  for (const int64_t rows : {1, 5, 64, 1000}) {
    for (const int64_t slices : {1, 2, 7, 64}) {
      EXPECT_EQ(SliceEdge(rows, slices, 0), 0);
      EXPECT_EQ(SliceEdge(rows, slices, slices), rows);
      for (int64_t slice = 0; slice < slices; ++slice) {
        EXPECT_LE(SliceEdge(rows, slices, slice), SliceEdge(rows, slices, slice + 1));
      }
    }
  }
}

TEST(DividedTest, APlanSaysItAndAGraphAllowsIt) {
  Example example = MakeExample();
  const Result<Plan> read = PlanFromJson(PlanToJson(example.plan));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(read->divides_optimizer);
  EXPECT_THAT(Describe(example.plan, example.graph), HasSubstr("the optimizer divided"));
  example.plan.divides_optimizer = false;
  EXPECT_THAT(PlanToJson(example.plan), Not(HasSubstr("optimizer")));
  example.plan.divides_optimizer = true;
  example.graph.optimizer.slices = 1;
  EXPECT_EQ(ValidatePlan(example.plan, example.graph).message(),
            "plan: it divides the optimizer, and the job's optimizer has one slice");
}

struct Fault {
  const char* name;
  const char* message;
  std::function<void(Programs&)> plant;
};

class DividedFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(DividedFaultTest, IsFound) {
  Example example = MakeExample();
  GetParam().plant(example.programs);
  const Status status = Verify(example.graph, example.plan, example.programs);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

/// The first await of a parameter.
size_t FindAwait(const Program& program) {
  size_t index = Find(program, Code::kAwait);
  while (program.instructions[index].parameter < 0) {
    index = Find(program, Code::kAwait, index + 1);
  }
  return index;
}

/// Worker 2 gathers with worker 0 only after worker 1 has gathered, which waits for worker 0 to send.
void WaitInACircle(Programs& programs) {
  Program& reader = programs[1];
  const size_t receive = Find(reader, Code::kRecv);
  const Instruction instruction = reader.instructions[receive];
  Remove(reader, receive);
  Insert(reader, 0, instruction);
  std::vector<Instruction>& list = programs[2].instructions;
  const auto last = std::ranges::find_if(list, [&](const Instruction& one) {
    return one.code == Code::kAwait && one.parameter == list[3].parameter;
  });
  std::rotate(list.begin() + 4, last, last + 1);
  std::rotate(list.begin(), list.begin() + 2, list.begin() + 5);
}

INSTANTIATE_TEST_SUITE_P(
    Faults,
    DividedFaultTest,
    ::testing::Values(
        Fault{"StaleRead", "before it is gathered",
              [](Programs& p) { Remove(p[0], FindAwait(p[0])); }},
        Fault{"AwaitedTwice", "or twice",
              [](Programs& p) {
                const size_t await = FindAwait(p[0]);
                const Instruction again = p[0].instructions[await];
                Insert(p[0], await, again);
              }},
        Fault{"AwaitsAnother", "which it does not gather",
              [](Programs& p) { p[0].instructions[FindAwait(p[0])].parameter = 1000; }},
        Fault{"NotGathered", "which it has not gathered piece",
              [](Programs& p) { Remove(p[0], Find(p[0], Code::kGather)); }},
        Fault{"GatheredTwice", "twice",
              [](Programs& p) {
                const Instruction again = At(p[0], Code::kGather);
                Insert(p[0], 0, again);
              }},
        Fault{"GathersASlot", "has 1 inputs and 0 outputs, expected 0 and 0",
              [](Programs& p) { At(p[0], Code::kGather).inputs = {0}; }},
        Fault{"AwaitsASlot", "has 1 inputs and 0 outputs, expected 0 and 0",
              [](Programs& p) { p[0].instructions[FindAwait(p[0])].inputs = {0}; }},
        Fault{"WaitedForInACircle", "waits for ever for an exchange or a gather", WaitInACircle},
        Fault{"GathersInAnotherOrder", "in different orders",
              [](Programs& p) { std::swap(p[2].instructions[0], p[2].instructions[1]); }},
        Fault{"OtherRows", "into other rows",
              [](Programs& p) {
                At(p[0], Code::kGather).rows = {5, 3};
              }},
        Fault{"OtherRowsOfASum", "into other rows",
              [](Programs& p) {
                At(p[0], Code::kReduce).rows = {5, 3};
              }},
        Fault{"AWholeSum", "into other rows",
              [](Programs& p) { At(p[0], Code::kReduce).rows = {}; }},
        Fault{"OtherHolders", "from others than its holders",
              [](Programs& p) {
                At(p[0], Code::kGather).group = {0, 1};
              }},
        Fault{"AnotherTag", "under another one's tag",
              [](Programs& p) { At(p[0], Code::kGather).tag ^= 1; }},
        Fault{"NoPiece", "of which it does not keep some rows",
              [](Programs& p) { At(p[0], Code::kGather).piece = 1; }},
        Fault{"KeepsMore", "other pieces of parameters than the worker holds",
              [](Programs& p) { p[0].pieces.front().kept.reset(); }},
        Fault{"NoNormOfAShare", "nobody reports the norm",
              [](Programs& p) { p[2].vote.norms.pop_back(); }},
        Fault{"ANormTwice", "is reported twice",
              [](Programs& p) { p[2].vote.norms.push_back(p[2].vote.norms.front()); }},
        Fault{"NoUpdate", "never updates",
              [](Programs& p) { Remove(p[2], Find(p[2], Code::kUpdate)); }}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

// Members exchange the parts of a parameter as the compute copy has them.
TEST(DividedTest, AnExchangeOfAParameterThatIsNotGatheredYetIsFound) {
  testing::GroupExample example = testing::GroupExampleOf(testing::GroupModel::kGatheredPositions);
  example.graph.optimizer.slices = 4;
  Plan plan = testing::GroupPlan(example.plan.layouts, {{{6, 0}}, {{6, 0}}}, 1);
  plan.divides_optimizer = true;
  Result<Programs> programs = LowerAll(example.graph, plan);
  ASSERT_TRUE(programs.ok()) << programs.status().ToString();
  ASSERT_EQ(Verify(example.graph, plan, *programs).message(), "");
  Program& program = (*programs)[0];
  size_t exchange = Find(program, Code::kExchange);
  while (program.instructions[exchange].inputs != std::vector<SlotId>{-1}) {
    exchange = Find(program, Code::kExchange, exchange + 1);
  }
  const graph::Exchange& gather =
      program.exchanges[static_cast<size_t>(program.instructions[exchange].exchange)];
  const auto await = std::ranges::find_if(program.instructions, [&](const Instruction& one) {
    return one.code == Code::kAwait && one.parameter >= 0 &&
           example.graph.parameter(one.parameter).compute == gather.from;
  });
  ASSERT_LT(await - program.instructions.begin(), static_cast<std::ptrdiff_t>(exchange));
  std::rotate(await, await + 1,
              program.instructions.begin() + static_cast<std::ptrdiff_t>(exchange) + 1);
  EXPECT_THAT(Verify(example.graph, plan, *programs).message(),
              HasSubstr("reads the compute copy of embedding.position.weight before"));
}

}  // namespace
}  // namespace heddle::program
