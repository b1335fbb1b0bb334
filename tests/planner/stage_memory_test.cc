/// \file
/// The memory of stages against simulations of plans that have them: beside other pipelines and
/// alone, for few microbatches and for many.
#include <algorithm>

#include <gtest/gtest.h>

#include "planner/search/problem.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Plan;

std::unique_ptr<Problem> ProblemOf(const SearchRequest& request) {
  auto problem = MakeProblem(request);
  EXPECT_TRUE(problem.ok()) << problem.status().ToString();
  return *std::move(problem);
}

/// Bytes of one stage beside another pipeline (which takes the first microbatch) or without.
int64_t SimulatedPeak(const graph::Graph& graph,
                      const std::vector<int>& ends,
                      size_t stage,
                      int microbatches,
                      bool recompute,
                      bool shared) {
  const int segments = static_cast<int>(graph.segments.size());
  Plan plan;
  program::Pipeline pipeline{
      .stages = {}, .first_microbatch = shared ? 1 : 0, .microbatches = microbatches};
  for (size_t j = 0; j < ends.size(); ++j) {
    plan.workers.push_back(fmt::format("w{}", j));
    pipeline.stages.push_back({.group = {static_cast<int>(j)},
                               .first_segment = j == 0 ? 0 : ends[j - 1],
                               .last_segment = ends[j],
                               .recompute = recompute && j == stage});
  }
  if (shared) {
    plan.workers.push_back(fmt::format("w{}", ends.size()));
    plan.pipelines.push_back({.stages = {{.group = {static_cast<int>(ends.size())},
                                          .first_segment = 0,
                                          .last_segment = segments}},
                              .first_microbatch = 0,
                              .microbatches = 1});
  }
  plan.pipelines.push_back(pipeline);
  const auto simulation =
      ScorePlan(graph, plan, ClusterOf(std::vector<double>(plan.workers.size(), 1)));
  EXPECT_TRUE(simulation.ok()) << simulation.status().ToString();
  return simulation->peak_bytes[stage];
}

TEST(StageMemoryTest, AStageFitsFromWhatItNeedsBesideOtherPipelines) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 32, .sequence = 128});
  const std::vector<std::vector<int>> cuts = {{6}, {2, 6}, {3, 5, 6}, {1, 2, 3, 6}};
  ASSERT_EQ(graph.segments.size(), 6U);
  for (const bool shared : {false, true}) {
    // Four microbatches a pipeline: nothing is extrapolated.
    SearchRequest request{
        .graph = &graph, .cluster = ClusterOf({1, 1, 1}), .microbatches = shared ? 8 : 4};
    for (const std::vector<int>& ends : cuts) {
      for (size_t j = 0; j < ends.size(); ++j) {
        for (const bool recompute : {false, true}) {
          const int64_t peak = SimulatedPeak(graph, ends, j, 4, recompute, shared);
          const int depth = static_cast<int>(ends.size() - j);
          const int first = j == 0 ? 0 : ends[j - 1];
          for (const int64_t memory : {peak, peak - 1}) {
            request.cluster.workers[1].memory_bytes = memory;
            const auto problem = ProblemOf(request);
            std::vector<WorkerCosts> costs;
            const PipelineInput input = InputByRank(*problem, shared ? 2 : 1, costs);
            EXPECT_EQ(input.fits(1, first, ends[j], depth, recompute), memory == peak)
                << "stage " << j << " of " << ends.size() << (shared ? ", shared" : "");
            EXPECT_TRUE(input.fits(0, first, ends[j], depth, recompute));
            const WorkerClasses classes = ExactClasses(request.cluster);
            const PipelineInput of_classes = InputOf(*problem, classes, shared ? 2 : 1, costs);
            EXPECT_EQ(of_classes.fits(classes.class_of[1], first, ends[j], depth, recompute),
                      memory == peak);
          }
        }
      }
    }
  }
}

TEST(StageMemoryTest, ManyMicrobatchesAreWhatTheirSimulationFinds) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const std::vector<int> ends = {2, 4, 6};
  const SearchRequest request{.graph = &graph, .cluster = ClusterOf({1}), .microbatches = 1};
  const auto problem = ProblemOf(request);
  for (const int microbatches : {1, 2, 3, 4, 5, 8, 9, 11, 12, 31, 64}) {
    for (size_t j = 0; j < 3; ++j) {
      for (const bool shared : {false, true}) {
        for (const bool recompute : {false, true}) {
          const StageShape shape{.first_segment = j == 0 ? 0 : ends[j - 1],
                                 .last_segment = ends[j],
                                 .later_stages = 2 - static_cast<int>(j),
                                 .microbatches = microbatches,
                                 .recompute = recompute,
                                 .pipelines = shared ? 2 : 1};
          EXPECT_EQ(problem->memory->PeakBytes(shape),
                    SimulatedPeak(graph, ends, j, microbatches, recompute, shared))
              << "stage " << j << " of " << microbatches << (shared ? ", shared" : "");
        }
      }
    }
  }
}

TEST(StageMemoryTest, QuickAnswersAboutMemoryAreTheExactOnes) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 32, .sequence = 256});
  for (const bool recompute : {false, true}) {
    for (int first = 0; first < 6; ++first) {
      for (int last = first + 1; last <= 6; ++last) {
        const SearchRequest request{.graph = &graph, .cluster = ClusterOf({1}), .microbatches = 4};
        const auto problem = ProblemOf(request);
        const StageShape shape{.first_segment = first,
                               .last_segment = last,
                               .later_stages = last < 6 ? 1 : 0,
                               .microbatches = 4,
                               .recompute = recompute};
        const int64_t peak = problem->memory->PeakBytes(shape);
        const int64_t estimate =
            EstimateStageBytes(problem->table, first, last, shape.in_flight(), 4, recompute);
        for (int percent = 20; percent <= 300; percent += 5) {
          for (const int64_t memory : {estimate * percent / 100, peak * percent / 100}) {
            EXPECT_EQ(problem->memory->Fits(memory, shape), peak <= memory) << percent;
          }
        }
      }
    }
  }
}

TEST(StageMemoryTest, RelaxedSumsDoNotGrowWithTheMicrobatches) {
  constexpr int64_t kLoss = 8;  // Each is kept until the vote.
  const graph::Graph graph = LlamaGraph({.layers = 1});
  const auto problem = ProblemOf({.graph = &graph,
                                  .cluster = ClusterOf({1}),
                                  .microbatches = 1,
                                  .determinism = program::Determinism::kRelaxed});
  StageShape shape{.first_segment = 0, .last_segment = 4, .microbatches = 4};
  const int64_t four = problem->memory->PeakBytes(shape);
  for (const int microbatches : {5, 8, 64}) {
    shape.microbatches = microbatches;
    EXPECT_EQ(problem->memory->PeakBytes(shape), four + kLoss * (microbatches - 4));
  }
}

}  // namespace
}  // namespace heddle::planner
