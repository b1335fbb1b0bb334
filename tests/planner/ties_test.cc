/// \file
/// Of plans that are about equally fast, the one with the fewest messages; then the one in force;
/// then the same one whatever the order and the exact seconds are.
#include "planner/search/ties.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "planner/search/search.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

constexpr double kNoBound = std::numeric_limits<double>::infinity();

class TiesTest : public testing::Test {
 protected:
  int Segments() const { return static_cast<int>(graph_.segments.size()); }

  // Of two workers and 8 microbatches.
  static Plan PlanOf(std::vector<Pipeline> pipelines) {
    Plan plan;
    plan.workers = {"w0", "w1"};
    plan.pipelines = std::move(pipelines);
    return plan;
  }
  // The whole model on one worker.
  Pipeline Whole(int worker, int first, int microbatches) const {
    return {.stages = {{.group = {worker}, .first_segment = 0, .last_segment = Segments()}},
            .first_microbatch = first,
            .microbatches = microbatches};
  }
  Plan Alone(int worker) const { return PlanOf({Whole(worker, 0, 8)}); }
  Plan Chain(int cut, int first = 0) const {
    return PlanOf(
        {{.stages = {{.group = {first}, .first_segment = 0, .last_segment = cut},
                     {.group = {1 - first}, .first_segment = cut, .last_segment = Segments()}},
          .first_microbatch = 0,
          .microbatches = 8}});
  }

  size_t Taken(const std::vector<ScoredPlan>& plans,
               double tie,
               double bound = kNoBound,
               const Plan* in_force = nullptr) const {
    return Preferred(graph_, plans, tie, bound, in_force);
  }

  const graph::Graph graph_ = LlamaGraph({.layers = 2});
};

TEST_F(TiesTest, MessagesOfAStepAreCounted) {
  EXPECT_EQ(MessagesOf(graph_, Alone(0)), 0);
  EXPECT_EQ(MessagesOf(graph_, Chain(1)), 16) << "one each way a microbatch";
  const auto parameters = static_cast<int64_t>(graph_.parameters.size());
  EXPECT_EQ(MessagesOf(graph_, PlanOf({Whole(0, 0, 4), Whole(1, 4, 4)})), 2 * parameters);
}

TEST_F(TiesTest, FewerMessagesWithinTheTie) {
  const std::vector<ScoredPlan> plans = {{Chain(1), 1.0}, {Alone(0), 1.009}, {Alone(1), 1.02}};
  EXPECT_EQ(Taken(plans, 0.01), 1u);
  EXPECT_EQ(Taken(plans, 0.001), 0u);
  EXPECT_EQ(Taken(plans, 0), 0u);
}

TEST_F(TiesTest, NoneThatIsSlowerThanTheBound) {
  const std::vector<ScoredPlan> plans = {{Chain(1), 1.0}, {Alone(0), 1.009}};
  EXPECT_EQ(Taken(plans, 0.01, 1.005), 0u) << "it would lose to a uniform grid";
  EXPECT_EQ(Taken(plans, 0.01, 0.5), 0u) << "the fastest is taken whatever the bound is";
}

TEST_F(TiesTest, ThePlanInForceAmongThoseWithAsManyMessages) {
  const std::vector<ScoredPlan> plans = {{Chain(1), 1.0}, {Chain(2), 1.004}, {Alone(0), 1.5}};
  const Plan in_force = Chain(2);
  EXPECT_EQ(Taken(plans, 0.01, kNoBound, &in_force), 1u);
  const Plan elsewhere = Chain(3);
  EXPECT_EQ(Taken(plans, 0.01, kNoBound, &elsewhere), 0u);
}

TEST_F(TiesTest, TheSamePlanInAnyOrderAndForAnySecondsWithinTheTie) {
  std::vector<ScoredPlan> plans = {{Chain(1), 1.0}, {Chain(2), 1.0}, {Chain(1, 1), 1.0}};
  const auto taken = [&] { return plans[Taken(plans, 0.01)].plan.pipelines; };
  const auto first = taken();
  for (int order = 0; order < 6; ++order) {
    std::rotate(plans.begin(), plans.begin() + 1, plans.end());
    if (order == 2) {
      std::ranges::reverse(plans);
    }
    plans[0].seconds = 1.009;
    plans[1].seconds = 1;
    EXPECT_EQ(taken(), first) << order;
  }
}

TEST_F(TiesTest, TheSearchTakesThePlanInForceOfTwoThatAreAlike) {
  // Two equal workers: which is first in the chain makes no difference.
  SearchRequest request{.graph = &graph_, .cluster = ClusterOf({1, 1}), .microbatches = 8};
  request.tie = 0.01;
  const auto plan = FindPlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  for (double speed : {1.0, 1.003, 0.997}) {
    request.cluster = ClusterOf({1, speed});
    request.previous = *plan;
    const auto next = FindPlan(request);
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    EXPECT_EQ(next->pipelines, plan->pipelines) << speed;
  }
}

}  // namespace
}  // namespace heddle::planner
