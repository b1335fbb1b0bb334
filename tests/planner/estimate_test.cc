/// \file
/// The estimate by stage against the simulation of the lowered plan, on clusters where one term of
/// the price after the other decides the time.
#include "planner/predictor/estimate.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/search/problem.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Plan;

struct Case {
  std::string name;
  ClusterProfile cluster;
  double tolerance;  ///< Relative.
};

/// Workers of two speeds; the time is made by one term. An estimate folds once a microbatch, at the
/// cost of the sum in the segment's backward; the Program folds by a tree, some of it later.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back({"computing", ClusterOf({1, 0.5, 1, 0.5}, 1e12, 0), 0.003});
  cases.push_back({"bandwidth", ClusterOf({1, 0.5, 1, 0.5}, 5e6, 0), 0.003});
  cases.push_back({"latency", ClusterOf({1, 0.5, 1, 0.5}, 1e12, 0.02), 0.003});
  cases.push_back({"instructions", ClusterOf({1, 0.5, 1, 0.5}, 1e12, 0), 0.02});
  cases.push_back({"folding", ClusterOf({1, 0.5, 1, 0.5}, 1e12, 0), 0.25});
  cases.push_back({"updating", ClusterOf({1, 0.5, 1, 0.5}, 1e12, 0), 0.003});
  for (program::WorkerProfile& worker : cases[3].cluster.workers) {
    worker.instruction_seconds = 1e-3;
  }
  for (program::WorkerProfile& worker : cases[4].cluster.workers) {
    worker.seconds["fold"] = 2e-7;
  }
  for (program::WorkerProfile& worker : cases[5].cluster.workers) {
    worker.seconds["update"] = 1e-6;
  }
  return cases;
}

/// One pipeline of two stages; two of them; two workers side by side; all again with recomputation.
std::vector<Plan> Plans(int segments) {
  const auto halves = [&](int worker, int cut, bool recompute) {
    return std::vector<program::Stage>{
        {.group = {worker}, .first_segment = 0, .last_segment = cut, .recompute = recompute},
        {.group = {worker + 1},
         .first_segment = cut,
         .last_segment = segments,
         .recompute = recompute}};
  };
  std::vector<Plan> plans;
  for (const bool recompute : {false, true}) {
    for (const auto determinism : {program::Determinism::kExact, program::Determinism::kRelaxed}) {
      Plan plan;
      plan.determinism = determinism;
      plan.workers = {"w0", "w1", "w2", "w3"};
      plan.pipelines = {{.stages = halves(0, segments / 2, recompute), .microbatches = 8}};
      plans.push_back(plan);
      plan.pipelines = {
          {.stages = halves(0, 2, recompute), .microbatches = 8},
          {.stages = halves(2, segments - 2, recompute), .first_microbatch = 8, .microbatches = 4}};
      plans.push_back(plan);
      plan.pipelines.clear();
      for (const int worker : {0, 1}) {
        plan.pipelines.push_back({.stages = {{.group = {worker},
                                              .first_segment = 0,
                                              .last_segment = segments,
                                              .recompute = recompute}},
                                  .first_microbatch = worker * 8,
                                  .microbatches = worker == 0 ? 8 : 4});
      }
      plans.push_back(plan);
    }
  }
  return plans;
}

TEST(EstimateTest, IsCloseToTheSimulationWhateverTermDominates) {
  graph::Graph graph = LlamaGraph({.layers = 4});
  graph.optimizer.slices = 16;
  for (const Case& each : Cases()) {
    int number = 0;
    std::vector<Plan> plans = Plans(static_cast<int>(graph.segments.size()));
    for (size_t i = 0, whole = plans.size(); i < whole; ++i) {
      plans.push_back(plans[i]);
      plans.back().divides_optimizer = true;
    }
    for (const Plan& plan : plans) {
      const SearchRequest request{.graph = &graph,
                                  .cluster = each.cluster,
                                  .microbatches = plan.microbatches(),
                                  .determinism = plan.determinism};
      const auto problem = MakeProblem(request);
      ASSERT_TRUE(problem.ok()) << problem.status().ToString();
      const auto simulation = ScorePlan(graph, plan, each.cluster);
      ASSERT_TRUE(simulation.ok()) << simulation.status().ToString();
      const double estimate = EstimateStepSeconds((*problem)->estimate, plan);
      const double error = estimate / simulation->step_seconds - 1;
      EXPECT_LE(std::abs(error), each.tolerance)
          << each.name << ", plan " << number << ": " << estimate << " against "
          << simulation->step_seconds;
      ++number;
    }
  }
}

TEST(EstimateTest, RecomputationCostsWhatLoweringRepeatsInEachMicrobatch) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  const int segments = static_cast<int>(graph.segments.size());
  const ClusterProfile cluster = ClusterOf({1});
  const SearchRequest request{.graph = &graph, .cluster = cluster, .microbatches = 6};
  const auto problem = MakeProblem(request);
  ASSERT_TRUE(problem.ok());
  Plan plan = program::SingleWorkerPlan("w0", segments, 6);
  const double without = EstimateStepSeconds((*problem)->estimate, plan);
  const double simulated = ScorePlan(graph, plan, cluster)->step_seconds;
  plan.pipelines[0].stages[0].recompute = true;
  const double more = ScorePlan(graph, plan, cluster)->step_seconds - simulated;
  EXPECT_NEAR(EstimateStepSeconds((*problem)->estimate, plan) - without, more, 1e-9 * without);
  // What the backward reads: no more than a forward, and most of it.
  double forward = 0;
  for (const graph::Node& node : graph.nodes) {
    forward += node.phase == graph::Phase::kForward ? cluster.workers[0].Seconds(graph, node) : 0;
  }
  EXPECT_LE(more, 6 * forward * 1.001);
  EXPECT_GE(more, 6 * forward * 0.5);
}

}  // namespace
}  // namespace heddle::planner
