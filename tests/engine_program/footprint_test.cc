/// \file
/// The memory of stages against their Programs: lowered, and measured slot by slot.
#include "engine/program/lowering/footprint.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/tensor/reduction_tree.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "tests/engine_program/graphs.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::program {
namespace {

FootprintStage StageOfPlan(const Plan& plan, const Pipeline& pipeline, size_t stage) {
  const Stage& it = pipeline.stages[stage];
  return {.first_segment = it.first_segment,
          .last_segment = it.last_segment,
          .recompute = it.recompute,
          .warm_up = pipeline.WarmUp(stage),
          .first_microbatch = pipeline.first_microbatch,
          .microbatches = pipeline.microbatches,
          .pipelines = static_cast<int>(plan.pipelines.size())};
}

/// The number of stages compared.
int ExpectExact(const graph::Graph& graph, const Plan& plan) {
  const auto programs = LowerAll(graph, plan);
  auto footprint = Footprint::Create(graph, plan.determinism);
  EXPECT_TRUE(programs.ok() && footprint.ok()) << programs.status().ToString();
  int stages = 0;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const Program& program = (*programs)[static_cast<size_t>(pipeline.stages[s].worker())];
      EXPECT_EQ(footprint->PeakBytes(StageOfPlan(plan, pipeline, s)),
                StateBytes(graph, program) + PeakSlotBytes(program))
          << "stage " << s << " from microbatch " << pipeline.first_microbatch << "\n"
          << Describe(plan, graph);
      ++stages;
    }
  }
  return stages;
}

/// As many microbatches as partial sums need to show all their numbers.
void DrawShares(Random& random, Plan& plan) {
  int first = 0;
  for (Pipeline& pipeline : plan.pipelines) {
    pipeline.first_microbatch = first;
    pipeline.microbatches = static_cast<int>(random.Between(1, 70));
    first += pipeline.microbatches;
  }
}

TEST(FootprintTest, EqualsTheProgramOfEveryStageOfRandomPlans) {
  int stages = 0;
  for (const uint64_t seed : testing::TestSeeds(testing::Scaled(60, 300, 2000))) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph =
        testing::RandomGraph(seed, seed % 2 == 0 ? DType::kF32 : DType::kBF16);
    Plan plan = testing::RandomPlan(seed, static_cast<int>(graph.segments.size()));
    Random random(seed);
    for (const bool many : {false, true}) {
      if (many) {
        DrawShares(random, plan);
      }
      for (const Determinism determinism : {Determinism::kExact, Determinism::kRelaxed}) {
        plan.determinism = determinism;
        stages += ExpectExact(graph, plan);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  std::printf("%d stages\n", stages);
}

TEST(FootprintTest, EqualsTheProgramOfATiedParameterWhereverItsUsesAre) {
  for (const Determinism determinism : {Determinism::kExact, Determinism::kRelaxed}) {
    const graph::Graph graph = testing::ChainGraph(5, /*tied=*/true);
    for (const std::vector<int>& cuts :
         std::vector<std::vector<int>>{{0, 5}, {0, 2, 5}, {0, 1, 4, 5}}) {
      for (int microbatches = 1; microbatches <= 40; ++microbatches) {
        Plan plan{.pipelines = {testing::PipelineOfCuts(cuts, 0, 0, microbatches)}};
        plan.determinism = determinism;
        for (size_t w = 0; w + 1 < cuts.size(); ++w) {
          plan.workers.push_back(fmt::format("w{}", w));
        }
        ExpectExact(graph, plan);
        plan.pipelines.push_back(testing::PipelineOfCuts(
            {0, 5}, static_cast<int>(plan.workers.size()), microbatches, 3));
        plan.workers.emplace_back("other");
        ExpectExact(graph, plan);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST(FootprintTest, NoFirstMicrobatchLeavesMoreSumsThanTheWorst) {
  for (int count = 1; count <= 300; ++count) {
    const size_t most = CoverRange(kWorstFirstMicrobatch, kWorstFirstMicrobatch + count).size();
    for (int64_t first = 0; first < 600; ++first) {
      EXPECT_LE(CoverRange(first, first + count).size(), most) << first << " " << count;
    }
  }
}

}  // namespace
}  // namespace heddle::program
