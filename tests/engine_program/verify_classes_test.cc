// Pipelines that are alike: one of them stands for all.
#include "engine/program/verify/verify_classes.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/program/lowering/lower.h"
#include "tests/engine_program/example_programs.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::program {
namespace {

using testing::ChainGraph;
using testing::Find;
using ::testing::HasSubstr;
using testing::PipelineOfCuts;
using testing::PlanOf;
using testing::Programs;
using testing::TestSeeds;

Programs MustLower(const graph::Graph& graph, const Plan& plan) {
  Result<Programs> programs = LowerAll(graph, plan);
  EXPECT_TRUE(programs.ok()) << programs.status().ToString();
  return programs.ok() ? std::move(*programs) : Programs{};
}

/// Copies of a random plan's pipelines: two to six of each, in any order of microbatches and ranks.
Plan PlanOfCopies(uint64_t seed, int segments) {
  Random random(seed);
  Plan plan = testing::RandomPlan(seed, segments);
  std::vector<Pipeline> copies;
  for (const Pipeline& pipeline : plan.pipelines) {
    copies.insert(copies.end(), static_cast<size_t>(random.Between(2, 6)), pipeline);
  }
  for (size_t i = copies.size(); i > 1; --i) {
    std::swap(copies[i - 1], copies[random.Below(i)]);
  }
  size_t stages = 0;
  int microbatches = 0;
  for (Pipeline& pipeline : copies) {
    stages += pipeline.stages.size();
    pipeline.first_microbatch = microbatches;
    microbatches += pipeline.microbatches;
  }
  std::vector<int> ranks(stages + random.Below(2));
  std::iota(ranks.begin(), ranks.end(), 0);
  plan.workers.clear();
  for (const int rank : ranks) {
    plan.workers.push_back(fmt::format("w{}", rank));
  }
  for (size_t i = ranks.size(); i > 1; --i) {
    std::swap(ranks[i - 1], ranks[random.Below(i)]);
  }
  for (Pipeline& pipeline : copies) {
    for (Stage& stage : pipeline.stages) {
      stage.group = {ranks[--stages]};
    }
  }
  plan.pipelines = std::move(copies);
  return plan;
}

/// What one instruction does, in words that ranks and the numbers of microbatches do not enter.
std::string ShapeOf(const Instruction& instruction, int first_microbatch, size_t place) {
  std::string text =
      fmt::format("{} n{} m{} p{} {} -> {}", static_cast<int>(instruction.code), instruction.node,
                  instruction.microbatch - first_microbatch, instruction.parameter,
                  fmt::join(instruction.inputs, ","), fmt::join(instruction.outputs, ","));
  if (!instruction.contributions.empty()) {
    for (const TreeNode& node : instruction.contributions[place]) {
      text += fmt::format(" level {}", node.level);
    }
  }
  return text;
}

std::vector<std::string> ShapesOf(const Program& program, int first_microbatch) {
  std::vector<std::string> shapes;
  for (const Instruction& instruction : program.instructions) {
    const auto place = std::find(instruction.group.begin(), instruction.group.end(), program.rank) -
                       instruction.group.begin();
    const bool numbered = instruction.microbatch >= 0;
    shapes.push_back(
        ShapeOf(instruction, numbered ? first_microbatch : 0, static_cast<size_t>(place)));
  }
  return shapes;
}

int FirstMicrobatch(const Plan& plan, int rank) {
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      if (stage.worker() == rank) {
        return pipeline.first_microbatch;
      }
    }
  }
  return 0;
}

TEST(VerifyClassesTest, EveryPlanVerifiesByClass) {
  for (const uint64_t seed : TestSeeds(testing::Scaled(20, 40, 160))) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = testing::RandomGraph(seed, DType::kF32);
    Plan plan = PlanOfCopies(seed, static_cast<int>(graph.segments.size()));
    for (const Determinism determinism : {Determinism::kExact, Determinism::kRelaxed}) {
      plan.determinism = determinism;
      const Programs programs = MustLower(graph, plan);
      for (const VerifyScope scope : {VerifyScope::kEveryWorker, VerifyScope::kEveryClass}) {
        const Status status = Verify(graph, plan, programs, scope);
        ASSERT_TRUE(status.ok()) << status.ToString() << "\n" << Describe(plan, graph);
      }
    }
  }
}

// What makes it right to follow one of a class: the others do the same.
TEST(VerifyClassesTest, TwinsDoTheSame) {
  int64_t twins = 0;
  for (const uint64_t seed : TestSeeds(testing::Scaled(20, 40, 160))) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = testing::RandomGraph(seed, DType::kF32);
    Plan plan = PlanOfCopies(seed, static_cast<int>(graph.segments.size()));
    for (const Determinism determinism : {Determinism::kExact, Determinism::kRelaxed}) {
      plan.determinism = determinism;
      const Programs programs = MustLower(graph, plan);
      const Followed followed = FollowedOf(plan, VerifyScope::kEveryClass);
      size_t workers = followed.ranks.size();
      for (const int rank : followed.ranks) {
        const int first = FirstMicrobatch(plan, rank);
        const auto shapes = ShapesOf(programs[static_cast<size_t>(rank)], first);
        for (const Twin& twin : followed.twins[static_cast<size_t>(rank)]) {
          ++workers;
          ++twins;
          ASSERT_EQ(first + twin.shift, FirstMicrobatch(plan, twin.rank));
          ASSERT_EQ(shapes, ShapesOf(programs[static_cast<size_t>(twin.rank)],
                                     FirstMicrobatch(plan, twin.rank)));
        }
      }
      ASSERT_EQ(workers, plan.workers.size());
    }
  }
  EXPECT_GT(twins, 0);
}

TEST(VerifyClassesTest, EverybodyIsFollowedUnlessClassesAreAskedFor) {
  const Plan plan = PlanOf(3, {PipelineOfCuts({0, 4}, 0, 0, 2), PipelineOfCuts({0, 4}, 1, 2, 2)});
  EXPECT_THAT(FollowedOf(plan, VerifyScope::kEveryWorker).ranks, ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(FollowedOf(plan, VerifyScope::kEveryClass).ranks, ::testing::ElementsAre(0, 2));
}

/// Two alike, of two stages each, and one of another share.
Plan PlanOfTwoClasses() {
  return PlanOf(5, {PipelineOfCuts({0, 2, 4}, 0, 0, 2), PipelineOfCuts({0, 2, 4}, 2, 2, 2),
                    PipelineOfCuts({0, 4}, 4, 4, 3)});
}

Status VerifyByClass(const std::function<void(Programs&)>& plant) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  const Plan plan = PlanOfTwoClasses();
  Programs programs = MustLower(graph, plan);
  plant(programs);
  return Verify(graph, plan, programs, VerifyScope::kEveryClass);
}

TEST(VerifyClassesTest, AFaultOfOneThatIsFollowedIsFound) {
  EXPECT_TRUE(VerifyByClass([](Programs&) {}).ok());
  EXPECT_THAT(VerifyByClass([](Programs& p) { testing::At(p[0], Code::kSend).tag += 7; }).message(),
              HasSubstr("waits for ever for tag"));
  EXPECT_THAT(
      VerifyByClass([](Programs& p) { testing::At(p[4], Code::kLoad).microbatch = 0; }).message(),
      HasSubstr("microbatch 0 belongs to another pipeline"));
}

TEST(VerifyClassesTest, AContributionThatIsPromisedForATwinIsChecked) {
  EXPECT_THAT(
      VerifyByClass([](Programs& p) {
        for (Program& program : p) {
          for (Instruction& instruction : program.instructions) {
            const auto twin = std::find(instruction.group.begin(), instruction.group.end(), 2);
            if (instruction.code == Code::kReduce && twin != instruction.group.end()) {
              instruction.contributions[static_cast<size_t>(twin - instruction.group.begin())][0] =
                  {.level = 1, .index = 0};
            }
          }
        }
      }).message(),
      HasSubstr("as worker w2: contribution 0 is not what the plan says"));
}

TEST(VerifyClassesTest, HeadersAndVotesAreCheckedOfEverybody) {
  EXPECT_THAT(VerifyByClass([](Programs& p) { p[3].generation += 1; }).message(),
              HasSubstr("worker w3"));
  EXPECT_THAT(VerifyByClass([](Programs& p) { p[3].vote.losses.pop_back(); }).message(),
              HasSubstr("nobody reports the loss of microbatch 3"));
  EXPECT_THAT(VerifyByClass([](Programs& p) {
                p[2].vote.norms.push_back({.parameter = 0, .gradient = 0});
              }).message(),
              HasSubstr("without owning it"));
  EXPECT_THAT(VerifyByClass([](Programs& p) {
                p[2].vote.norms.push_back({.parameter = 99, .gradient = 0});
              }).message(),
              HasSubstr("parameter 99, which nobody holds"));
}

}  // namespace
}  // namespace heddle::program
