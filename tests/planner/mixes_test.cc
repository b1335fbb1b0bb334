/// \file
/// Mixed clusters: the predicted throughput is close to the sum of the workers' own, limits hold,
/// and the plan beats the best uniform grid.
#include <algorithm>
#include <ostream>

#include <gtest/gtest.h>

#include "planner/search/search.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

struct Mix {
  std::string name;
  std::vector<double> speeds;
  int microbatches;
  double bandwidth;
  double memory_fraction;  ///< Of what one worker needs for the whole model; 0: no cap.
  int layers = 6;
};

void PrintTo(const Mix& mix, std::ostream* out) {
  *out << mix.name;
}

class MixTest : public testing::TestWithParam<Mix> {};

TEST_P(MixTest, ReachesTheSumOfItsParts) {
  const Mix& mix = GetParam();
  const graph::Graph graph = LlamaGraph({.layers = mix.layers, .hidden = 96, .sequence = 128});
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf(mix.speeds, mix.bandwidth),
                        .microbatches = mix.microbatches};
  const double single = RSum(graph, request.cluster, mix.microbatches, 1);
  if (mix.memory_fraction > 0) {
    const Result<Simulation> whole = ScorePlan(
        graph,
        program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), mix.microbatches),
        ClusterOf({1}));
    ASSERT_TRUE(whole.ok());
    for (program::WorkerProfile& worker : request.cluster.workers) {
      worker.memory_bytes =
          static_cast<int64_t>(mix.memory_fraction * static_cast<double>(whole->peak_bytes[0]));
    }
  }
  const Result<SearchOutcome> outcome = Search(request);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  const double r_sum = single / outcome->plan.predicted_step_seconds;
  RecordProperty("r_sum", std::to_string(r_sum));
  EXPECT_GE(r_sum, 0.90) << Explain(request, *outcome);
  for (size_t rank = 0; rank < request.cluster.workers.size(); ++rank) {
    const int64_t memory = request.cluster.workers[rank].memory_bytes;
    EXPECT_TRUE(memory == 0 || outcome->plan.predicted_peak_bytes[rank] <= memory);
  }
  const Result<program::Plan> uniform = UniformGrid(request);
  if (uniform.ok()) {
    EXPECT_LE(outcome->plan.predicted_step_seconds, uniform->predicted_step_seconds);
  }
  if (mix.memory_fraction > 0) {
    for (const program::Pipeline& pipeline : outcome->plan.pipelines) {
      EXPECT_GE(pipeline.stages.size(), 2u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes,
                         MixTest,
                         testing::Values(Mix{"Three", {0.8, 0.4, 0.4}, 32, 5e9, 0},
                                         Mix{"Four", {0.6, 0.6, 0.3, 0.15}, 44, 5e9, 0},
                                         Mix{"Six", {0.5, 0.2, 0.2, 0.2, 0.2, 0.2}, 60, 5e9, 0},
                                         Mix{"Capped", {0.6, 0.6, 0.3, 0.15}, 64, 5e9, 0.45, 12},
                                         Mix{"SlowLinks", {0.6, 0.6, 0.3, 0.15}, 64, 125e6, 0}),
                         [](const auto& mix) { return mix.param.name; });

}  // namespace
}  // namespace heddle::planner
