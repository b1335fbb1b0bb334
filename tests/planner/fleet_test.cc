/// \file
/// Plans for clusters with too many divisions: workers dealt by speed, packings of compositions,
/// and models that only deep pipelines hold.
#include "planner/search/fleet.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "planner/search/divisions.h"
#include "planner/search/improve.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

std::unique_ptr<Problem> ProblemOf(const SearchRequest& request) {
  auto problem = MakeProblem(request);
  EXPECT_TRUE(problem.ok()) << problem.status().ToString();
  return *std::move(problem);
}

std::vector<Plan> PlansOf(const Problem& problem) {
  return FleetPlans(problem, ExactClasses(problem.cluster));
}

/// Workers by speed, to and fro.
std::vector<std::vector<int>> Dealt(const std::vector<double>& speeds, int pipelines) {
  std::vector<int> ranks;
  for (size_t i = 0; i < speeds.size(); ++i) {
    ranks.push_back(static_cast<int>(i));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return speeds[static_cast<size_t>(a)] > speeds[static_cast<size_t>(b)];
  });
  std::vector<std::vector<int>> dealt(static_cast<size_t>(pipelines));
  int at = 0;
  int step = 1;
  for (const int rank : ranks) {
    dealt[static_cast<size_t>(at)].push_back(rank);
    if (at + step < 0 || at + step == pipelines) {
      step = -step;
    } else {
      at += step;
    }
  }
  return dealt;
}

/// Least time of so many microbatches over all cuts for workers in this order, as the header of
/// pipelines.h states it.
double LeastSeconds(const Problem& problem, const std::vector<int>& order, int microbatches) {
  double least = std::numeric_limits<double>::infinity();
  const std::function<void(size_t, int, double, double)> visit = [&](size_t left, int last,
                                                                     double fill, double period) {
    if (left == 0) {
      if (last == 0) {
        least = std::min(least, fill + (microbatches - 1) * period);
      }
      return;
    }
    const int rank = order[left - 1];
    for (int first = 0; first < last; ++first) {
      const double own = problem.costs[static_cast<size_t>(rank)]->Stage(first, last, false);
      double more = own;
      double slowest = std::max(period, own);
      if (left < order.size()) {
        const auto cut = static_cast<size_t>(last);
        const comm::Link& down = problem.cluster.links.At(rank, order[left]);
        const comm::Link& up = problem.cluster.links.At(order[left], rank);
        const double forward =
            static_cast<double>(problem.table.forward_bytes[cut]) / down.bytes_per_second;
        const double backward =
            static_cast<double>(problem.table.backward_bytes[cut]) / up.bytes_per_second;
        more += forward + backward + down.latency_seconds + up.latency_seconds;
        slowest = std::max({slowest, forward, backward,
                            (fill + more) / static_cast<double>(order.size() - left + 1)});
      }
      visit(left - 1, first, fill + more, slowest);
    }
  };
  visit(order.size(), problem.table.segments, 0, 0);
  return least;
}

double SecondsOf(const Problem& problem, const Pipeline& pipeline, int microbatches) {
  std::vector<int> order;
  double fill = 0;
  double period = 0;
  for (size_t j = pipeline.stages.size(); j-- > 0;) {
    const Stage& stage = pipeline.stages[j];
    const double own = problem.costs[static_cast<size_t>(stage.worker())]->Stage(
        stage.first_segment, stage.last_segment, stage.recompute);
    fill += own;
    period = std::max(period, own);
    if (j + 1 < pipeline.stages.size()) {
      const int next = pipeline.stages[j + 1].worker();
      const auto cut = static_cast<size_t>(stage.last_segment);
      const comm::Link& down = problem.cluster.links.At(stage.worker(), next);
      const comm::Link& up = problem.cluster.links.At(next, stage.worker());
      const double forward =
          static_cast<double>(problem.table.forward_bytes[cut]) / down.bytes_per_second;
      const double backward =
          static_cast<double>(problem.table.backward_bytes[cut]) / up.bytes_per_second;
      fill += forward + backward + down.latency_seconds + up.latency_seconds;
      period = std::max(
          {period, forward, backward, fill / static_cast<double>(pipeline.stages.size() - j)});
    }
  }
  return fill + (microbatches - 1) * period;
}

TEST(FleetTest, WorkersAreDealtBySpeedAndCutForThemselves) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const std::vector<double> speeds = {0.3, 1, 0.45, 0.9, 0.2, 0.7, 0.6};
  for (const int each : {1, 2, 12}) {
    for (const double bytes_per_second : {1e6, 1e12}) {
      SearchRequest request{.graph = &graph,
                            .cluster = ClusterOf(speeds, bytes_per_second),
                            .microbatches = 7 * each};
      const auto problem = ProblemOf(request);
      const std::vector<Plan> plans = PlansOf(*problem);
      ASSERT_GE(plans.size(), 8U);
      for (int count = 1; count <= 7; ++count) {
        const Plan& plan = plans[plans.size() - 8 + static_cast<size_t>(count)];
        EXPECT_TRUE(program::ValidatePlan(plan, problem->table.segments).ok());
        EXPECT_EQ(plan.microbatches(), 7 * each);
        EXPECT_LE(static_cast<int>(plan.pipelines.size()), count);
        std::vector<std::vector<int>> expected = Dealt(speeds, count);
        for (std::vector<int>& order : expected) {
          order.resize(std::min<size_t>(order.size(), 6));  // There are but six segments.
        }
        for (const Pipeline& pipeline : plan.pipelines) {
          std::vector<int> order;
          for (const Stage& stage : pipeline.stages) {
            order.push_back(stage.worker());
          }
          EXPECT_EQ(std::count(expected.begin(), expected.end(), order), 1)
              << count << " pipelines\n"
              << program::Describe(plan, graph);
          const int share = std::max(1, 7 * each / count);
          EXPECT_LE(SecondsOf(*problem, pipeline, share),
                    1.001 * LeastSeconds(*problem, order, share))
              << share << " microbatches\n"
              << program::Describe(plan, graph);
        }
      }
    }
  }
}

TEST(FleetTest, SoManyAreDealtAndNoMore) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  const auto plans = [&](int workers, int microbatches) {
    return PlansOf(*ProblemOf(
                       {.graph = &graph,
                        .cluster = ClusterOf(std::vector<double>(static_cast<size_t>(workers), 1)),
                        .microbatches = microbatches}))
        .size();
  };
  // Packings of a least depth of 1, 2, 4 (and 8, which four segments do not have) …
  EXPECT_EQ(plans(65, 130), 3U);
  // … and 1, 2, … pipelines.
  EXPECT_EQ(plans(64, 130), 3U + 16);
  EXPECT_EQ(plans(20, 15), 3U + 15);
  EXPECT_EQ(plans(3, 10), 2U + 3);
  EXPECT_EQ(plans(1, 10), 1U + 1);
}

TEST(FleetTest, PackingsKeepTheirLeastDepthAndUseTheWorkers) {
  const graph::Graph graph = LlamaGraph({.layers = 3});
  std::vector<double> speeds;
  for (int i = 0; i < 70; ++i) {
    speeds.push_back(i % 5 < 3 ? 1 : 0.4);
  }
  const SearchRequest request{
      .graph = &graph, .cluster = ClusterOf(speeds, 1e12, 0), .microbatches = 1400};
  const auto problem = ProblemOf(request);
  double speed = 0;
  for (const WorkerCosts* costs : problem->costs) {
    speed += 1 / costs->Stage(0, problem->table.segments, false);
  }
  const std::vector<Plan> plans = PlansOf(*problem);
  ASSERT_EQ(plans.size(), 4U);
  size_t least = 1;
  for (const Plan& plan : plans) {
    EXPECT_TRUE(program::ValidatePlan(plan, problem->table.segments).ok());
    EXPECT_EQ(plan.microbatches(), 1400);
    for (const Pipeline& pipeline : plan.pipelines) {
      EXPECT_GE(pipeline.stages.size(), least);
    }
    EXPECT_LT(plan.IdleWorkers().size(), least);
    double slowest = 0;
    for (const Pipeline& pipeline : plan.pipelines) {
      slowest = std::max(slowest, SecondsOf(*problem, pipeline, pipeline.microbatches));
    }
    RecordProperty(fmt::format("fraction_{}", least), std::to_string(1400 / speed / slowest));
    EXPECT_GT(1400 / speed / slowest, 0.65) << "at least " << least << " deep";
    least *= 2;
  }
}

TEST(FleetTest, APackingIsNearTheBestDivision) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const std::vector<std::vector<double>> clusters = {
      {1, 1, 1}, {1, 1, 0.3, 0.3}, {1, 0.5, 0.5, 0.5}, {1, 1, 0.6, 0.6, 0.6}, {1, 0.1, 0.1}};
  for (const std::vector<double>& speeds : clusters) {
    for (const int microbatches : {5, 24}) {
      const SearchRequest request{
          .graph = &graph, .cluster = ClusterOf(speeds, 1e12, 0), .microbatches = microbatches};
      const auto problem = ProblemOf(request);
      const WorkerClasses classes = ExactClasses(problem->cluster);
      std::vector<WorkerCosts> costs;
      const auto best = BestDivisions(
          *problem, classes, PipelineTable::Build(InputOf(*problem, classes, 1, costs)), 1);
      ASSERT_TRUE(best.has_value());
      const Plan plan = PlansOf(*problem).front();
      EXPECT_LE(EstimateStepSeconds(problem->estimate, plan), 1.25 * best->front().seconds)
          << program::Describe(plan, graph);
    }
  }
}

TEST(FleetTest, ModelsThatOnlyDeepPipelinesHoldAreHeld) {
  const graph::Graph graph = LlamaGraph({.layers = 9});
  const int segments = static_cast<int>(graph.segments.size());
  ASSERT_EQ(segments, 20);
  SearchRequest request{
      .graph = &graph, .cluster = ClusterOf(std::vector<double>(12, 1)), .microbatches = 4};
  int64_t most = 0;  // Of two segments, whatever comes after them.
  const auto free = ProblemOf(request);
  for (int s = 0; s + 2 <= segments; s += 2) {
    most = std::max(most, free->memory->PeakBytes({.first_segment = s,
                                                   .last_segment = s + 2,
                                                   .later_stages = (segments - s) / 2 - 1,
                                                   .microbatches = 4,
                                                   .recompute = true,
                                                   .pipelines = 2}));
  }
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = most;
  }
  const auto problem = ProblemOf(request);
  const std::vector<Plan> plans = PlansOf(*problem);
  ASSERT_FALSE(plans.empty());
  for (const Plan& plan : plans) {
    EXPECT_TRUE(program::ValidatePlan(plan, segments).ok());
    EXPECT_TRUE(FitsMemory(*problem, plan)) << program::Describe(plan, graph);
    for (const Pipeline& pipeline : plan.pipelines) {
      EXPECT_GT(pipeline.stages.size(), 8U);
    }
  }
}

}  // namespace
}  // namespace heddle::planner
