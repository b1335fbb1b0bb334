// Gradients that one collective sums: which they are, that all holders join the same, and planted
// faults.
#include "engine/program/lowering/joint_sums.h"

#include <algorithm>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "tests/engine_program/example_programs.h"
#include "tests/support/graph/groups.h"

namespace heddle::program {
namespace {

using testing::At;
using ::testing::ElementsAre;
using testing::Find;
using ::testing::HasSubstr;
using testing::PipelineOfCuts;
using testing::PlanOf;
using testing::Programs;

TEST(JointSumsTest, SmallSumsOfEqualUsesAndHoldersAreMadeTogether) {
  const std::vector<SingleSum> sums = {
      {.bytes = 4, .segments = {3}, .holders = {0, 1}},
      {.bytes = 4, .segments = {3}, .holders = {0, 2}},                     // Other holders.
      {.bytes = kMostJoinedBytes + 4, .segments = {3}, .holders = {0, 1}},  // Large.
      {.bytes = kMostJoinedBytes, .segments = {3}, .holders = {0, 1}},      // Just not.
      {.bytes = 4, .alone = true, .segments = {3}, .holders = {0, 1}},      // Divided.
      {.bytes = 4, .segments = {3, 5}, .holders = {0, 1}},                  // Tied.
      {.bytes = 4, .segments = {2}, .holders = {0, 1}},                     // Another segment.
      {.bytes = 4, .segments = {3}, .holders = {0, 2}},
  };
  EXPECT_THAT(JoinSums(sums), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 7), ElementsAre(2),
                                          ElementsAre(4), ElementsAre(5), ElementsAre(6)));
}

TEST(JointSumsTest, ACollectiveHasABound) {
  const std::vector<SingleSum> sums(6, {.bytes = kMostJoinedBytes, .segments = {1}});
  EXPECT_THAT(JoinSums(sums), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5)));
}

/// Three workers: a pipeline of two stages and one of one, which all hold the layers.
struct Example {
  graph::Graph graph = testing::SmallTrainingGraph(
      testing::SmallModel(graph::ModelFamily::kLlama, 4, /*tied=*/false));
  Plan plan;
  Programs programs;
};

Example LlamaExample() {
  Example example;
  const int segments = static_cast<int>(example.graph.segments.size());
  example.plan = PlanOf(
      3, {PipelineOfCuts({0, 2, segments}, 0, 0, 3), PipelineOfCuts({0, segments}, 2, 3, 2)});
  Result<Programs> programs = LowerAll(example.graph, example.plan);
  HEDDLE_CHECK(programs.ok(), "{}", programs.status().ToString());
  example.programs = *std::move(programs);
  return example;
}

/// By collective, the names of the parameters whose gradients it sums.
std::vector<std::vector<std::string>> CollectivesOf(const Program& program,
                                                    const graph::Graph& graph) {
  std::vector<std::vector<std::string>> collectives;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.code == Code::kReduce) {
      if (instruction.part == 0) {
        collectives.emplace_back();
      }
      collectives.back().push_back(graph.parameter(instruction.parameter).name);
    }
  }
  return collectives;
}

TEST(JointSumsTest, HoldersOfASegmentJoinItsSums) {
  const Example example = LlamaExample();
  ASSERT_EQ(example.programs.size(), 3U);
  const auto whole = CollectivesOf(example.programs[2], example.graph);
  // Every parameter of this model is small: one collective a segment that has any.
  size_t parameters = 0;
  for (const auto& collective : whole) {
    parameters += collective.size();
  }
  EXPECT_EQ(parameters, example.graph.parameters.size());
  EXPECT_LT(whole.size(), example.graph.segments.size() + 1);
  // The two stages make the same ones, each of its segments.
  std::vector<std::vector<std::string>> stages = CollectivesOf(example.programs[1], example.graph);
  for (auto& collective : CollectivesOf(example.programs[0], example.graph)) {
    stages.push_back(std::move(collective));
  }
  EXPECT_EQ(stages, whole);
}

TEST(JointSumsTest, ASumIsIssuedWhenTheLastOfItsCollectiveIsComplete) {
  const Example example = LlamaExample();
  for (const Program& program : example.programs) {
    std::set<SlotId> written;
    for (size_t i = 0; i < program.vote_index; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.code == Code::kReduce && instruction.part == 0) {
        for (int part = 0; part < instruction.parts; ++part) {
          const Instruction& sum = program.instructions[i + static_cast<size_t>(part)];
          EXPECT_EQ(sum.part, part);
          for (const SlotId input : sum.inputs) {
            EXPECT_TRUE(written.contains(input));
          }
        }
      }
      written.insert(instruction.outputs.begin(), instruction.outputs.end());
    }
  }
}

struct Fault {
  const char* name;
  const char* message;
  std::function<void(Programs&)> plant;
};

class JointFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(JointFaultTest, IsFound) {
  Example example = LlamaExample();
  ASSERT_TRUE(Verify(example.graph, example.plan, example.programs).ok());
  GetParam().plant(example.programs);
  const Status status = Verify(example.graph, example.plan, example.programs);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

/// The first sum of a collective of at least three.
size_t FirstOfMany(const Program& program) {
  size_t index = Find(program, Code::kReduce);
  while (program.instructions[index].parts < 3 || program.instructions[index].part != 0) {
    index = Find(program, Code::kReduce, index + 1);
  }
  return index;
}

INSTANTIATE_TEST_SUITE_P(
    Faults,
    JointFaultTest,
    ::testing::Values(
        Fault{"NoSuchPart", "of a collective",
              [](Programs& p) { p[0].instructions[FirstOfMany(p[0])].part = -1; }},
        Fault{"MorePartsThanAre", "of a collective",
              [](Programs& p) { p[0].instructions[FirstOfMany(p[0])].parts = 1 << 30; }},
        Fault{"PartsThatDoNotFollow", "together with others that do not follow it",
              [](Programs& p) {
                const size_t first = FirstOfMany(p[0]);
                testing::Insert(p[0], first + 2,
                                {.code = Code::kFree, .inputs = p[0].instructions[first].inputs});
              }},
        Fault{"ASumFewer", "together with others that do not follow it",
              [](Programs& p) { --p[0].instructions[FirstOfMany(p[0])].parts; }},
        Fault{"AnotherOrder", "in different orders",
              [](Programs& p) {
                const size_t first = FirstOfMany(p[0]);
                Instruction& second = p[0].instructions[first + 1];
                Instruction& third = p[0].instructions[first + 2];
                std::swap(second, third);
                std::swap(second.part, third.part);
              }},
        Fault{"AloneOnOneWorker", "together with other parameters than others do",
              [](Programs& p) {
                const size_t first = FirstOfMany(p[0]);
                const int parts = p[0].instructions[first].parts;
                for (int part = 0; part < parts; ++part) {
                  Instruction& sum = p[0].instructions[first + static_cast<size_t>(part)];
                  sum.part = std::max(0, part - 1);
                  sum.parts = part == 0 ? 1 : parts - 1;
                }
              }},
        Fault{"OtherContributions", "that are reduced otherwise",
              [](Programs& p) {
                for (Program& program : {std::ref(p[0]), std::ref(p[2])}) {
                  const size_t first = FirstOfMany(program);
                  for (size_t part = 1; part < 3; ++part) {
                    program.instructions[first + part].contributions.back().pop_back();
                  }
                }
              }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace heddle::program
