// Planted faults: each goes red in the static check, for the right reason.
#include "engine/program/verify/verify.h"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/program/lowering/lower.h"
#include "tests/engine_program/example_programs.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"

namespace heddle::program {
namespace {

using testing::At;
using testing::ChainGraph;
using testing::ExamplePlan;
using testing::Find;
using ::testing::HasSubstr;
using testing::Insert;
using testing::PipelineOfCuts;
using testing::PlanOf;
using testing::Programs;
using testing::Remove;

graph::Graph ExampleGraph() {
  return ChainGraph(4, /*tied=*/true);
}

struct Fault {
  const char* name;
  const char* message;
  std::function<void(Programs&)> plant;
};

class PlantedFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(PlantedFaultTest, IsFound) {
  const graph::Graph graph = ExampleGraph();
  const Plan plan = ExamplePlan();
  Result<Programs> programs = LowerAll(graph, plan);
  ASSERT_TRUE(programs.ok()) << programs.status().ToString();
  ASSERT_TRUE(Verify(graph, plan, *programs).ok());
  GetParam().plant(*programs);
  const Status status = Verify(graph, plan, *programs);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Messages,
    PlantedFaultTest,
    ::testing::Values(Fault{"DroppedSend", "waits for ever for tag",
                            [](Programs& p) { Remove(p[0], Find(p[0], Code::kSend)); }},
                      Fault{"SendTwice", "sends tag",
                            [](Programs& p) {
                              const size_t send = Find(p[0], Code::kSend);
                              Insert(p[0], send, p[0].instructions[send]);
                            }},
                      Fault{"DroppedReceive", "before it is written",
                            [](Programs& p) { Remove(p[1], Find(p[1], Code::kRecv)); }},
                      Fault{"WrongTag", "waits for ever for tag",
                            [](Programs& p) { At(p[0], Code::kSend).tag += 7; }},
                      Fault{"WrongPeer", "worker w0: the program's peers",
                            [](Programs& p) { At(p[0], Code::kSend).peer = 3; }},
                      Fault{"OneSidedPeer", "peers are not those",
                            [](Programs& p) { p[0].peers.pop_back(); }},
                      Fault{"ReceiveOfAnotherType", "as another type",
                            [](Programs& p) {
                              const SlotId slot = At(p[1], Code::kRecv).outputs[0];
                              p[1].slots[static_cast<size_t>(slot)].type.dtype = DType::kF16;
                            }},
                      Fault{"CrossedReceives", "waits for ever",
                            [](Programs& p) {
                              // The last stage waits for microbatch 2 before it returns microbatch
                              // 0's gradient, which the first stage waits for before it computes
                              // microbatch 2.
                              size_t last = 0;
                              for (size_t i = 0; i < p[1].instructions.size(); ++i) {
                                last = p[1].instructions[i].code == Code::kRecv ? i : last;
                              }
                              const Instruction receive = p[1].instructions[last];
                              Remove(p[1], last);
                              Insert(p[1], 0, receive);
                            }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Values,
    PlantedFaultTest,
    ::testing::Values(Fault{"DoubleFree", "free: reads slot",
                            [](Programs& p) {
                              const size_t free = Find(p[2], Code::kFree);
                              Insert(p[2], free, p[2].instructions[free]);
                            }},
                      Fault{"MissingFree", "is never freed",
                            [](Programs& p) { Remove(p[2], Find(p[2], Code::kFree)); }},
                      Fault{"FreedTooEarly", "after it was freed",
                            [](Programs& p) {
                              const size_t run = Find(p[2], Code::kRun);
                              Insert(p[2], run,
                                     {.code = Code::kFree,
                                      .inputs = {p[2].instructions[run].inputs[0]}});
                            }},
                      Fault{"SlotWrittenTwice", "once too often",
                            [](Programs& p) {
                              const size_t run = Find(p[2], Code::kRun);
                              Insert(p[2], run, p[2].instructions[run]);
                            }},
                      Fault{"LoadedTwice", "twice",
                            [](Programs& p) {
                              const size_t load = Find(p[2], Code::kLoad);
                              Insert(p[2], load, p[2].instructions[load]);
                            }},
                      Fault{"UnknownSlot", "slot 100000, which does not exist",
                            [](Programs& p) { At(p[2], Code::kRun).inputs[0] = 100000; }},
                      Fault{"ParameterAsSlot", "from its own state",
                            [](Programs& p) { At(p[2], Code::kRun).inputs[1] = 0; }},
                      Fault{"AnotherMicrobatchsValue", "does not hold",
                            [](Programs& p) { At(p[2], Code::kRun).microbatch = 4; }},
                      Fault{"AnotherPipelinesMicrobatch", "belongs to another pipeline",
                            [](Programs& p) { At(p[2], Code::kLoad).microbatch = 0; }},
                      Fault{"UnusedSlot", "is never written",
                            [](Programs& p) { p[2].slots.push_back(p[2].slots.front()); }},
                      Fault{"WrongSlotType", "does not fit",
                            [](Programs& p) { p[2].slots[1].type.shape.push_back(2); }},
                      Fault{"UnknownNode", "node 999 does not exist",
                            [](Programs& p) { At(p[2], Code::kRun).node = 999; }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Gradients,
    PlantedFaultTest,
    ::testing::Values(
        Fault{"MissingContribution", "is not what the plan says",
              [](Programs& p) { Remove(p[0], Find(p[0], Code::kFold)); }},
        Fault{"FoldTwice", "is added twice",
              [](Programs& p) {
                const size_t fold = Find(p[0], Code::kFold);
                Insert(p[0], fold, p[0].instructions[fold]);
              }},
        Fault{"SwappedFold", "out of tree order",
              [](Programs& p) {
                std::vector<SlotId>& inputs = At(p[0], Code::kFold).inputs;
                std::swap(inputs[0], inputs[1]);
              }},
        Fault{"SwappedReduceOrder", "different orders",
              [](Programs& p) {
                // Worker 0 reduces 1, then 0; worker 2 reduces 2, 1, 0. Both frees move along.
                const size_t first = Find(p[0], Code::kReduce);
                const size_t second = Find(p[0], Code::kReduce, first + 1);
                const Instruction reduce = p[0].instructions[first];
                Insert(p[0], second + 1, reduce);
                Remove(p[0], first);
              }},
        Fault{"DroppedReduce", "takes no part in the reduction",
              [](Programs& p) {
                const size_t reduce = Find(p[0], Code::kReduce);
                const SlotId output = p[0].instructions[reduce].outputs[0];
                Remove(p[0], reduce);
                const auto uses = [&](const Instruction& instruction) {
                  return (instruction.code == Code::kUpdate || instruction.code == Code::kFree) &&
                         instruction.inputs[0] == output;
                };
                std::vector<Instruction>& list = p[0].instructions;
                list.erase(std::remove_if(list.begin(), list.end(), uses), list.end());
                p[0].peers = {1, 2};
                std::vector<VoteShare::Norm>& norms = p[0].vote.norms;
                norms.erase(
                    std::remove_if(norms.begin(), norms.end(),
                                   [&](const auto& norm) { return norm.gradient == output; }),
                    norms.end());
              }},
        Fault{"OtherContributions", "disagrees with others",
              [](Programs& p) { At(p[0], Code::kReduce).contributions[0].pop_back(); }},
        Fault{"ContributionsOfAll", "contributes 2 values, expected 1",
              [](Programs& p) {
                for (Program& program : p) {
                  for (Instruction& instruction : program.instructions) {
                    if (instruction.code == Code::kReduce && instruction.parameter == 1) {
                      instruction.contributions[0].pop_back();
                    }
                  }
                }
              }},
        Fault{"OtherGroup", "over others than its holders",
              [](Programs& p) {
                At(p[0], Code::kReduce).group = {0, 1};
              }},
        Fault{"OtherReduceTag", "disagrees with others",
              [](Programs& p) { At(p[0], Code::kReduce).tag += 1; }},
        Fault{"GradientReadBeforeTheVote", "before its reduction has ended",
              [](Programs& p) {
                const size_t reduce = Find(p[0], Code::kReduce);
                Insert(p[0], reduce + 1,
                       {.code = Code::kFree, .inputs = p[0].instructions[reduce].outputs});
              }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Vote,
    PlantedFaultTest,
    ::testing::Values(
        Fault{"MissingUpdate", "never updates embedding.weight",
              [](Programs& p) { Remove(p[0], Find(p[0], Code::kUpdate)); }},
        Fault{"UpdateTwice", "updates parameter 0 twice",
              [](Programs& p) {
                const size_t update = Find(p[0], Code::kUpdate);
                Insert(p[0], update, p[0].instructions[update]);
              }},
        Fault{"UpdateBeforeTheVote", "wrong side of the vote",
              [](Programs& p) {
                const size_t update = Find(p[0], Code::kUpdate);
                const Instruction instruction = p[0].instructions[update];
                Remove(p[0], update);
                Insert(p[0], p[0].vote_index, instruction);
              }},
        Fault{"UpdateWithAnotherGradient", "is used for",
              [](Programs& p) { At(p[0], Code::kUpdate).parameter = 1; }},
        Fault{"NoVote", "is not the vote", [](Programs& p) { Remove(p[3], 0); }},
        Fault{"MissingLoss", "nobody reports the loss of microbatch",
              [](Programs& p) { p[1].vote.losses.pop_back(); }},
        Fault{"LossOfAnother", "does not hold loss",
              [](Programs& p) { std::swap(p[1].vote.losses[0].slot, p[1].vote.losses[1].slot); }},
        Fault{"MissingNorm", "nobody reports the norm of",
              [](Programs& p) { p[0].vote.norms.pop_back(); }},
        Fault{"NormOfAReplica", "without owning it",
              [](Programs& p) {
                p[2].vote.norms.push_back(
                    {.parameter = 0, .gradient = At(p[2], Code::kUpdate).inputs[0]});
              }},
        Fault{"OtherRank", "another rank", [](Programs& p) { p[0].rank = 1; }},
        Fault{"OtherGeneration", "another rank, generation",
              [](Programs& p) { ++p[0].generation; }},
        Fault{"OtherParameters", "other parameters",
              [](Programs& p) { p[0].parameters.push_back(2); }},
        Fault{"MissingProgram", "3 programs for 4", [](Programs& p) { p.pop_back(); }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

// No instruction of any program is superfluous: the check notices when any one is missing.
TEST(VerifyTest, EveryDroppedInstructionIsFound) {
  for (const uint64_t seed : testing::TestSeeds(60)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = testing::RandomGraph(seed, DType::kF32);
    Plan plan = testing::RandomPlan(seed, static_cast<int>(graph.segments.size()));
    plan.determinism = seed % 3 == 0 ? Determinism::kRelaxed : Determinism::kExact;
    const Result<Programs> programs = LowerAll(graph, plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    Random random(seed);
    for (int i = 0; i < 6; ++i) {
      Programs broken = *programs;
      Program& program = broken[random.Below(broken.size())];
      const size_t index = random.Below(program.instructions.size());
      SCOPED_TRACE(fmt::format("rank {} instruction {}", program.rank, index));
      Remove(program, index);
      EXPECT_FALSE(Verify(graph, plan, broken).ok());
    }
  }
}

// Nor is any operand arbitrary.
TEST(VerifyTest, EveryChangedInputIsFound) {
  for (const uint64_t seed : testing::TestSeeds(60)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = testing::RandomGraph(seed, DType::kF32);
    const Plan plan = testing::RandomPlan(seed, static_cast<int>(graph.segments.size()));
    const Result<Programs> programs = LowerAll(graph, plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    Random random(seed);
    for (int i = 0; i < 6; ++i) {
      Programs broken = *programs;
      Program& program = broken[random.Below(broken.size())];
      Instruction& instruction = program.instructions[random.Below(program.instructions.size())];
      if (instruction.inputs.empty()) {
        continue;
      }
      SlotId& input = instruction.inputs[random.Below(instruction.inputs.size())];
      const auto other = static_cast<SlotId>(random.Below(program.slots.size()));
      if (other == input) {
        continue;
      }
      input = other;
      EXPECT_FALSE(Verify(graph, plan, broken).ok()) << ToString(program, graph);
    }
  }
}

}  // namespace
}  // namespace heddle::program
