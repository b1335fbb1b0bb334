/// \file
/// What it takes to change a plan: who keeps its place and how long the state travels, against
/// figures worked out by hand. And which clusters are refused.
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "planner/predictor/cluster.h"
#include "planner/search/warm_start.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Plan;

std::unique_ptr<Problem> ProblemOf(const graph::Graph& graph,
                                   const ClusterProfile& cluster,
                                   int microbatches = 8) {
  auto problem = MakeProblem({.graph = &graph, .cluster = cluster, .microbatches = microbatches});
  EXPECT_TRUE(problem.ok()) << problem.status().ToString();
  return *std::move(problem);
}

/// One pipeline over these workers, cut where it says.
Plan PipelineOf(const std::vector<std::string>& names,
                const std::vector<int>& order,
                const std::vector<int>& ends,
                int microbatches = 8) {
  Plan plan;
  plan.workers = names;
  plan.pipelines = {{.stages = {}, .microbatches = microbatches}};
  int first = 0;
  for (size_t j = 0; j < order.size(); ++j) {
    plan.pipelines[0].stages.push_back(
        {.group = {order[j]}, .first_segment = first, .last_segment = ends[j]});
    first = ends[j];
  }
  return plan;
}

TEST(WarmStartTest, ExchangeableWorkersKeepTheSegmentsTheyHold) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  const int segments = static_cast<int>(graph.segments.size());
  const auto problem = ProblemOf(graph, ClusterOf({1, 1, 0.5}));
  const std::vector<std::string> names = {"w0", "w1", "w2"};
  const WorkerClasses classes = ExactClasses(problem->cluster);
  const Plan previous = PipelineOf(names, {1, 0, 2}, {2, 4, segments});
  // w0 and w1 may change places, w2 may not.
  const Plan kept =
      KeepPlaces(*problem, classes, previous, PipelineOf(names, {0, 1, 2}, {3, 4, segments}));
  EXPECT_EQ(kept.pipelines, PipelineOf(names, {1, 0, 2}, {3, 4, segments}).pipelines);
  const Plan other =
      KeepPlaces(*problem, classes, previous, PipelineOf(names, {2, 1, 0}, {2, 4, segments}));
  EXPECT_EQ(other.pipelines, PipelineOf(names, {2, 0, 1}, {2, 4, segments}).pipelines);
}

TEST(WarmStartTest, StateTravelsOverTheLinksOfItsHolders) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  const int segments = static_cast<int>(graph.segments.size());
  ClusterProfile cluster = ClusterOf({1, 1, 1});
  cluster.links.At(0, 2).bytes_per_second = 1e6;
  cluster.links.At(1, 2).bytes_per_second = 4e6;
  const auto problem = ProblemOf(graph, cluster);
  const std::vector<std::string> names = {"w0", "w1", "w2"};
  const Plan previous = PipelineOf(names, {0, 1}, {3, segments});
  EXPECT_EQ(MovingSeconds(*problem, previous, previous), 0);
  // Everything goes to w2, from w0 at 1 MB/s and from w1 at 4 MB/s: masters and two moments.
  double seconds = 0;
  double slow = 0;
  double bytes[2] = {0, 0};
  for (size_t s = 0; s < problem->table.parameters.size(); ++s) {
    for (const graph::ParameterId id : problem->table.parameters[s]) {
      const double state = 12 * static_cast<double>(ElementCount(graph.parameter(id).shape));
      bytes[s < 3 ? 0 : 1] += state;
    }
  }
  slow = bytes[0] / 1e6;
  seconds = slow + bytes[1] / 4e6;
  const Plan all_on_w2 = PipelineOf(names, {2}, {segments});
  EXPECT_NEAR(MovingSeconds(*problem, previous, all_on_w2), seconds, 1e-9 * seconds);
  // To two workers at once: the slower of the two transfers.
  cluster.links.At(0, 1).bytes_per_second = 1e3;
  const auto slower = ProblemOf(graph, cluster);
  const Plan shifted = PipelineOf(names, {2, 1}, {3, segments});
  EXPECT_NEAR(MovingSeconds(*slower, previous, shifted), slow, 1e-9 * slow);
  // What a lost worker held comes from nobody.
  const auto two = ProblemOf(graph, ClusterOf({1, 1}));
  Plan lost = previous;
  lost.workers = {"gone", "w1", "w0"};
  EXPECT_EQ(MovingSeconds(*two, lost, PipelineOf({"w0", "w1"}, {0, 1}, {3, segments})), 0);
}

TEST(WarmStartTest, PlansOfWhatIsLeftCoverTheModelAndTheBatch) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  const int segments = static_cast<int>(graph.segments.size());
  const auto problem = ProblemOf(graph, ClusterOf({1, 1, 1}), 9);
  Plan previous;
  previous.workers = {"w2", "gone", "w0", "w1"};
  for (const int p : {0, 1}) {
    previous.pipelines.push_back(
        {.stages = {{.group = {2 * p}, .first_segment = 0, .last_segment = 3},
                    {.group = {2 * p + 1}, .first_segment = 3, .last_segment = segments}},
         .first_microbatch = 4 * p,
         .microbatches = p == 0 ? 4 : 5});
  }
  ASSERT_TRUE(program::ValidatePlan(previous, segments).ok());
  const std::vector<Plan> plans = PlansFrom(*problem, previous);
  ASSERT_EQ(plans.size(), 2U);
  for (const Plan& plan : plans) {
    EXPECT_TRUE(program::ValidatePlan(plan, segments).ok());
    EXPECT_EQ(plan.microbatches(), 9);
    EXPECT_EQ(plan.workers, (std::vector<std::string>{"w0", "w1", "w2"}));
  }
  // The whole pipeline stays as it was; of the other the survivor takes all, too.
  ASSERT_EQ(plans[0].pipelines.size(), 1U);
  const program::Stage first = {.group = {0}, .first_segment = 0, .last_segment = 3};
  EXPECT_EQ(plans[0].pipelines[0].stages.front(), first);
  ASSERT_EQ(plans[1].pipelines.size(), 2U);
  EXPECT_TRUE(plans[1].IdleWorkers().empty());
}

TEST(WarmStartTest, SharesOfWhatIsLeftCountTheTimeToFillAPipeline) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  const int segments = static_cast<int>(graph.segments.size());
  for (const int microbatches : {2, 3, 5, 8}) {
    const auto problem = ProblemOf(graph, ClusterOf({1, 1, 1, 0.3}), microbatches);
    Plan previous = PipelineOf({"w0", "w1", "w2", "w3"}, {0, 1, 2}, {3, 6, segments}, 1);
    previous.pipelines.push_back(
        {.stages = {{.group = {3}, .first_segment = 0, .last_segment = segments}},
         .first_microbatch = 1,
         .microbatches = 1});
    const auto seconds = [&](const program::Pipeline& pipeline, int count) {
      double fill = 0;
      double period = 0;
      for (const program::Stage& stage : pipeline.stages) {
        const double own = problem->costs[static_cast<size_t>(stage.worker())]->Stage(
            stage.first_segment, stage.last_segment, false);
        fill += own;
        period = std::max(period, own);
      }
      return count == 0 ? 0 : fill + (count - 1) * period;
    };
    double least = std::numeric_limits<double>::infinity();
    for (int deep = 0; deep <= microbatches; ++deep) {
      least = std::min(least, std::max(seconds(previous.pipelines[0], deep),
                                       seconds(previous.pipelines[1], microbatches - deep)));
    }
    const std::vector<Plan> plans = PlansFrom(*problem, previous);
    ASSERT_EQ(plans.size(), 2U);
    double slowest = 0;
    for (const program::Pipeline& pipeline : plans[0].pipelines) {
      slowest = std::max(slowest, seconds(pipeline, pipeline.microbatches));
    }
    EXPECT_NEAR(slowest, least, 1e-9 * least) << microbatches;
  }
}

TEST(ClusterTest, FiguresThatNothingCanHaveAreRefused) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const double endless = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(ClusterProfile&)>> faults = {
      [](auto& c) { c.links.At(1, 2).latency_seconds = -1e-9; },
      [&](auto& c) { c.links.At(2, 0).latency_seconds = none; },
      [](auto& c) { c.links.At(0, 1).bytes_per_second = 0; },
      [&](auto& c) { c.links.At(0, 1).bytes_per_second = endless; },
      [](auto& c) { c.workers[2].flops_per_second = -1; },
      [&](auto& c) { c.workers[1].bytes_per_second = endless; },
      [&](auto& c) { c.workers[1].instruction_seconds = none; },
      [](auto& c) { c.workers[0].memory_bytes = -1; },
      [](auto& c) { c.workers[0].seconds["fold"] = -1e-12; },
      [](auto& c) { c.workers[0].worker = ""; },
      [](auto& c) { c.workers[2].worker = "w0"; },
      [](auto& c) { c.links = comm::LinkTable(2); },
      [](auto& c) { c.links = comm::LinkTable(4); },
  };
  const ClusterProfile good = ClusterOf({1, 1, 1});
  EXPECT_TRUE(ValidateCluster(good).ok());
  for (size_t i = 0; i < faults.size(); ++i) {
    ClusterProfile cluster = good;
    faults[i](cluster);
    EXPECT_EQ(ValidateCluster(cluster).code(), StatusCode::kInvalidArgument) << "fault " << i;
  }
  ClusterProfile still = good;
  still.links.At(0, 1).latency_seconds = 0;
  still.links.At(1, 1).bytes_per_second = -1;  // Nobody sends to itself.
  EXPECT_TRUE(ValidateCluster(still).ok());
}

TEST(ClusterTest, SelectedWorkersKeepTheirOwnLinks) {
  ClusterProfile cluster = ClusterOf({1, 0.5, 0.25});
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      cluster.links.At(from, to).bytes_per_second = 100 + 10 * from + to;
    }
  }
  const std::vector<std::string> names = {"w2", "w0"};
  const auto selected = SelectWorkers(cluster, names);
  ASSERT_TRUE(selected.ok());
  EXPECT_EQ(selected->workers[0].worker, "w2");
  EXPECT_EQ(selected->workers[1].worker, "w0");
  EXPECT_EQ(selected->links.size(), 2);
  EXPECT_EQ(selected->links.At(0, 1).bytes_per_second, 120);
  EXPECT_EQ(selected->links.At(1, 0).bytes_per_second, 102);
  const std::vector<std::string> twice = {"w1", "w1"};
  EXPECT_EQ(SelectWorkers(cluster, twice).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::planner
