/// \file
/// Plans under tight memory against what must not beat them: the uniform grid of equal stages, the
/// plan in force, and the plan that less memory gave.
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "planner/search/search.h"
#include "tests/planner/support.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::planner {
namespace {

using program::Plan;

constexpr int64_t kMiB = 1 << 20;
/// Sums of the same numbers in another order.
constexpr double kRounding = 1 + 1e-9;

/// Of a random mix: 2 to 6 workers of up to three kinds.
struct Mix {
  graph::Graph graph;
  SearchRequest request;
  int64_t whole = 0;  ///< Bytes that the model takes on one worker.
};

void DrawMix(uint64_t seed, Mix& mix) {
  Random random(seed);
  mix.graph = LlamaGraph({.layers = static_cast<int>(random.Between(2, 5)),
                          .hidden = 32 << random.Below(2),
                          .sequence = 32 << random.Below(3)});
  std::vector<double> kinds;
  for (int64_t kind = random.Between(1, 3); kind > 0; --kind) {
    kinds.push_back(0.25 + random.Uniform());
  }
  std::vector<double> speeds;
  for (int64_t worker = random.Between(2, 6); worker > 0; --worker) {
    speeds.push_back(kinds[random.Below(kinds.size())]);
  }
  mix.request = {.graph = &mix.graph,
                 .cluster = ClusterOf(speeds, std::pow(10, 7 + 3 * random.Uniform())),
                 .microbatches = static_cast<int>(random.Between(2, 24)),
                 .determinism = random.Below(2) == 0 ? program::Determinism::kExact
                                                     : program::Determinism::kRelaxed};
  SearchRequest alone = mix.request;
  alone.cluster = ClusterOf({1});
  const auto plan = FindPlan(alone);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  mix.whole = plan->predicted_peak_bytes[0];
  for (program::WorkerProfile& worker : mix.request.cluster.workers) {
    worker.memory_bytes =
        static_cast<int64_t>(static_cast<double>(mix.whole) * (0.2 + random.Uniform()));
  }
}

TEST(BaselinesTest, NoPlanLosesToTheUniformGridAndAllFit) {
  int compared = 0;
  for (const uint64_t seed : testing::TestSeeds(testing::Scaled(15, 60, 500))) {
    HEDDLE_TRACE_SEED(seed);
    Mix mix;
    DrawMix(seed, mix);
    const auto grid = UniformGrid(mix.request);
    const auto plan = FindPlan(mix.request);
    if (!plan.ok()) {
      EXPECT_FALSE(grid.ok()) << plan.status().ToString();
      continue;
    }
    for (size_t rank = 0; rank < plan->predicted_peak_bytes.size(); ++rank) {
      EXPECT_LE(plan->predicted_peak_bytes[rank], mix.request.cluster.workers[rank].memory_bytes);
    }
    if (grid.ok()) {
      ++compared;
      EXPECT_LE(plan->predicted_step_seconds, grid->predicted_step_seconds * kRounding);
    }
  }
  EXPECT_GT(compared, 5);
  std::printf("%d mixes had a grid\n", compared);
}

// The search is no exact one: more memory leads it elsewhere, at times to a plan a little slower.
TEST(BaselinesTest, MoreMemoryIsHardlySlower) {
  constexpr int kSteps = 6;
  constexpr double kMax = 1.25;
  double worst = 1;
  for (const uint64_t seed : testing::TestSeeds(testing::Scaled(3, 10, 100))) {
    HEDDLE_TRACE_SEED(seed);
    Mix mix;
    DrawMix(seed, mix);
    double before = std::numeric_limits<double>::infinity();
    for (int step = 0; step < kSteps; ++step) {
      const auto plan = FindPlan(mix.request);
      if (plan.ok()) {
        worst = std::max(worst, plan->predicted_step_seconds / before);
        EXPECT_LE(plan->predicted_step_seconds, before * kMax) << "step " << step;
        before = plan->predicted_step_seconds;
      }
      EXPECT_TRUE(plan.ok() || std::isinf(before)) << plan.status().ToString();
      for (program::WorkerProfile& worker : mix.request.cluster.workers) {
        worker.memory_bytes += worker.memory_bytes / 8;
      }
    }
  }
  std::printf("at worst %.4f times as long\n", worst);
}

// Two fast workers with little memory, and two slow ones with more.
TEST(BaselinesTest, FastWorkersWithLittleMemoryAreUsed) {
  const graph::Graph graph = LlamaGraph({.layers = 8, .hidden = 256, .sequence = 128});
  SearchRequest request{
      .graph = &graph, .cluster = ClusterOf({2, 2, 0.5, 0.5}), .microbatches = 16};
  double before = std::numeric_limits<double>::infinity();
  for (const int64_t cap : {80, 85, 88, 90, 93, 95, 110}) {
    request.cluster.workers[0].memory_bytes = cap * kMiB;
    request.cluster.workers[1].memory_bytes = cap * kMiB;
    const auto plan = FindPlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_LE(plan->predicted_step_seconds, before * 1.001) << cap << " MiB";
    before = plan->predicted_step_seconds;
    EXPECT_EQ(std::ranges::count_if(plan->IdleWorkers(), [](int rank) { return rank < 2; }), 0)
        << program::Describe(*plan, graph);
    std::printf("%ld MiB: %.3f s\n", static_cast<long>(cap), before);
  }
}

TEST(BaselinesTest, ThePlanInForceIsKeptUnlessAnotherIsFaster) {
  for (const uint64_t seed : testing::TestSeeds(testing::Scaled(5, 20, 100))) {
    HEDDLE_TRACE_SEED(seed);
    Mix mix;
    DrawMix(seed, mix);
    const auto ran = FindPlan(mix.request);
    if (!ran.ok()) {
      continue;
    }
    mix.request.previous = *ran;
    mix.request.limits = SearchLimits::Hurried();
    const auto next = FindPlan(mix.request);
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    EXPECT_LE(next->predicted_step_seconds, ran->predicted_step_seconds * kRounding);
  }
}

}  // namespace
}  // namespace heddle::planner
