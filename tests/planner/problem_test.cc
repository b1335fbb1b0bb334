/// \file
/// A request made ready: the input of the table of pipelines, the memory of stages beside other
/// pipelines, and the plan of a draft, against figures worked out from the request alone.
#include "planner/search/problem.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Plan;

std::unique_ptr<Problem> ProblemOf(const SearchRequest& request) {
  auto problem = MakeProblem(request);
  EXPECT_TRUE(problem.ok()) << problem.status().ToString();
  return *std::move(problem);
}

/// Four workers; the slowest link of each is another one: out of worker 0, into worker 1, …
ClusterProfile OddLinks() {
  ClusterProfile cluster = ClusterOf({1, 0.5, 0.8, 0.2}, 1e9);
  cluster.links.At(0, 3).bytes_per_second = 4e6;
  cluster.links.At(3, 1).bytes_per_second = 5e6;
  cluster.links.At(2, 0).bytes_per_second = 6e6;
  cluster.links.At(1, 2).latency_seconds = 0.125;
  return cluster;
}

double SlowestOf(int rank) {
  return std::vector<double>{4e6, 5e6, 6e6, 4e6}[static_cast<size_t>(rank)];
}

/// What reducing the gradients of segments [0, end) costs a worker for each of its microbatches:
/// twice (pipelines - 1) / pipelines of their bytes pass its slowest link once a step.
double ReductionSeconds(const Problem& problem, int rank, int pipelines, int end) {
  double bytes = 0;
  for (int s = 0; s < end; ++s) {
    for (const graph::ParameterId id : problem.table.parameters[static_cast<size_t>(s)]) {
      bytes += 4 * static_cast<double>(ElementCount(problem.graph->parameter(id).shape));
    }
  }
  const double each = static_cast<double>(problem.microbatches) / pipelines;
  return bytes * 2 * (pipelines - 1) / pipelines / SlowestOf(rank) / each;
}

void ExpectCosts(const Problem& problem, const WorkerCosts& costs, int rank, int pipelines) {
  const WorkerCosts own = BuildWorkerCosts(*problem.graph, problem.table,
                                           problem.cluster.workers[static_cast<size_t>(rank)]);
  EXPECT_EQ(costs.forward, own.forward);
  for (int end = 0; end <= problem.table.segments; ++end) {
    const double expected =
        own.backward[static_cast<size_t>(end)] + ReductionSeconds(problem, rank, pipelines, end);
    EXPECT_NEAR(costs.backward[static_cast<size_t>(end)], expected, 1e-9 * expected)
        << "worker " << rank << " of " << pipelines << " pipelines, up to " << end;
  }
}

TEST(ProblemTest, EachWorkerForItselfBearsItsShareOfTheReductions) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  SearchRequest request{.graph = &graph, .cluster = OddLinks(), .microbatches = 10};
  for (const int depth : {0, 1, 5}) {
    request.limits.max_depth = depth;
    const auto problem = ProblemOf(request);
    for (const int pipelines : {1, 2, 3, 4}) {
      std::vector<WorkerCosts> costs = {WorkerCosts{}};  // Forgotten.
      const PipelineInput input = InputByRank(*problem, pipelines, costs);
      EXPECT_EQ(input.max_depth, depth == 0 ? 8 : depth);
      EXPECT_EQ(input.microbatches,
                std::vector<int>({10, 5, 4, 3})[static_cast<size_t>(pipelines) - 1]);
      EXPECT_EQ(input.counts, (std::vector<int>{1, 1, 1, 1}));
      EXPECT_EQ(input.table, &problem->table);
      EXPECT_EQ(input.costs, &costs);
      ASSERT_EQ(costs.size(), 4U);
      for (int rank = 0; rank < 4; ++rank) {
        ExpectCosts(*problem, costs[static_cast<size_t>(rank)], rank, pipelines);
        for (int to = 0; to < 4; ++to) {
          const comm::Link& link = request.cluster.links.At(rank, to);
          EXPECT_EQ(input.link(rank, to).bytes_per_second, link.bytes_per_second);
          EXPECT_EQ(input.link(rank, to).latency_seconds, link.latency_seconds);
        }
      }
    }
  }
}

TEST(ProblemTest, AClassIsItsMiddleWorkerAndItsSmallestMemory) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  SearchRequest request{.graph = &graph, .cluster = OddLinks(), .microbatches = 12};
  // Speeds 1, 0.8 and 0.2: worker 2 is in the middle. Worker 3 has the least memory.
  WorkerClasses classes;
  classes.class_of = {0, 1, 0, 0};
  classes.members = {{0, 2, 3}, {1}};
  request.cluster.workers[0].memory_bytes = int64_t{1} << 40;
  request.cluster.workers[3].memory_bytes = 1000;
  request.limits.max_depth = 3;
  const auto problem = ProblemOf(request);
  for (const int pipelines : {1, 2, 3}) {
    std::vector<WorkerCosts> costs = {WorkerCosts{}};
    const PipelineInput input = InputOf(*problem, classes, pipelines, costs);
    EXPECT_EQ(input.max_depth, 3);
    EXPECT_EQ(input.microbatches, 12 / pipelines);
    EXPECT_EQ(input.counts, (std::vector<int>{3, 1}));
    ASSERT_EQ(costs.size(), 2U);
    ExpectCosts(*problem, costs[0], 2, pipelines);
    ExpectCosts(*problem, costs[1], 1, pipelines);
    // Between classes: of their first members; inside: of the first two.
    const comm::LinkTable& links = request.cluster.links;
    EXPECT_EQ(input.link(0, 1).bytes_per_second, links.At(0, 1).bytes_per_second);
    EXPECT_EQ(input.link(1, 0).bytes_per_second, links.At(1, 0).bytes_per_second);
    EXPECT_EQ(input.link(0, 0).bytes_per_second, links.At(0, 2).bytes_per_second);
    EXPECT_EQ(input.link(1, 1).bytes_per_second, comm::Link{}.bytes_per_second);
    EXPECT_FALSE(input.fits(0, 0, 1, 1, true));
    EXPECT_TRUE(input.fits(1, 0, problem->table.segments, 1, false));
  }
  // No limit is more than any.
  classes.members = {{0, 1}, {2, 3}};
  classes.class_of = {0, 0, 1, 1};
  request.cluster.workers[0].memory_bytes = 1000;
  const auto other = ProblemOf(request);
  std::vector<WorkerCosts> costs;
  EXPECT_FALSE(InputOf(*other, classes, 1, costs).fits(0, 0, 1, 1, true));
  classes.members = {{1, 0}, {2, 3}};
  EXPECT_FALSE(InputOf(*other, classes, 1, costs).fits(0, 0, 1, 1, true));
}

TEST(ProblemTest, TheShapeOfAStageIsThePlans) {
  Plan plan;
  plan.pipelines = {
      {.stages = {{.group = {0}, .first_segment = 0, .last_segment = 2, .ahead = 3},
                  {.group = {1}, .first_segment = 2, .last_segment = 7, .recompute = true}},
       .first_microbatch = 0,
       .microbatches = 9}};
  for (const bool shared : {false, true}) {
    const StageShape first = ShapeOf(plan, plan.pipelines[0], 0);
    EXPECT_EQ(first.last_segment, 2);
    EXPECT_EQ(first.later_stages, 1);
    EXPECT_EQ(first.microbatches, 9);
    EXPECT_FALSE(first.recompute);
    EXPECT_EQ(first.pipelines, shared ? 2 : 1);
    EXPECT_EQ(first.ahead, 3);
    EXPECT_EQ(first.in_flight(), 5);
    const StageShape second = ShapeOf(plan, plan.pipelines[0], 1);
    EXPECT_EQ(second.first_segment, 2);
    EXPECT_EQ(second.last_segment, 7);
    EXPECT_EQ(second.later_stages, 0);
    EXPECT_TRUE(second.recompute);
    EXPECT_EQ(second.in_flight(), 1);
    plan.pipelines.push_back(plan.pipelines[0]);
  }
}

TEST(ProblemTest, WhatDoesNotDependOnThePlanIsPreparedOnce) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  const auto parameters = static_cast<int64_t>(graph.parameters.size());
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf({1, 0.5, 1, 0.25, 0.5}, 1e6),
                        .microbatches = 400,
                        .generation = 12};
  request.determinism = program::Determinism::kRelaxed;
  const auto problem = ProblemOf(request);
  EXPECT_EQ(problem->distinct.size(), 3U);
  EXPECT_EQ(problem->costs[0], problem->costs[2]);
  EXPECT_EQ(problem->costs[1], problem->costs[4]);
  for (size_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(problem->costs[rank]->forward,
              BuildWorkerCosts(graph, problem->table, request.cluster.workers[rank]).forward);
  }
  // The records of the vote: a norm a parameter and a loss a microbatch, dealt to the workers.
  EXPECT_EQ(problem->estimate.vote_seconds,
            comm::AllGatherBytesSeconds(request.cluster.links, 64 + 16 * (parameters + 400) / 5));
  request.workers = {"w3"};
  EXPECT_EQ(ProblemOf(request)->estimate.vote_seconds, 0);
  request.workers = {"w3", "w0"};
  request.cluster.links.At(3, 0).transport = "there";
  request.cluster.links.At(0, 3).transport = "back";
  const Plan plan = EmptyPlan(*ProblemOf(request));
  EXPECT_EQ(plan.workers, request.workers);
  EXPECT_EQ(plan.generation, 12);
  EXPECT_EQ(plan.determinism, program::Determinism::kRelaxed);
  EXPECT_EQ(plan.transports, (std::vector<std::vector<std::string>>{{"", "there"}, {"back", ""}}));
}

TEST(ProblemTest, TransportsOfALargeClusterAreLeftOut) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  for (const size_t count : {size_t{128}, size_t{129}}) {
    const Plan plan = EmptyPlan(*ProblemOf(
        {.graph = &graph, .cluster = ClusterOf(std::vector<double>(count, 1)), .microbatches = 2}));
    EXPECT_EQ(plan.workers.size(), count);
    EXPECT_EQ(plan.transports.size(), count == 128 ? 128U : 0U);
  }
}

TEST(ProblemTest, WhatCannotBePlannedIsNamed) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  const auto message = [](const SearchRequest& request) {
    const auto problem = MakeProblem(request);
    EXPECT_EQ(problem.status().code(), StatusCode::kInvalidArgument);
    return std::string(problem.status().message());
  };
  EXPECT_EQ(message({.graph = nullptr, .cluster = ClusterOf({1}), .microbatches = 1}),
            "no graph to plan for");
  EXPECT_EQ(message({.graph = &graph, .cluster = ClusterOf({1}), .microbatches = 0}),
            "a global batch of 0 microbatches cannot be planned");
  EXPECT_EQ(message({.graph = &graph, .cluster = {}, .microbatches = 1}), "no workers to plan for");
  const graph::Graph empty;
  EXPECT_EQ(message({.graph = &empty, .cluster = ClusterOf({1}), .microbatches = 1}),
            "the graph has no segments");
}

/// Least time of the rest of the microbatches over pipelines from `p` on.
double LeastTime(const Draft& draft, size_t p, int left) {
  if (p == draft.pipelines.size()) {
    return left == 0 ? 0 : std::numeric_limits<double>::infinity();
  }
  double least = LeastTime(draft, p + 1, left);
  for (int share = 1; share <= left; ++share) {
    for (const Draft::Alternative& alternative : draft.pipelines[p]) {
      least =
          std::min(least, std::max(alternative.pace.fill + (share - 1) * alternative.pace.period,
                                   LeastTime(draft, p + 1, left - share)));
    }
  }
  return least;
}

TEST(ProblemTest, ADraftBecomesThePlanOfLeastTimeLargestSharesFirst) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  // Two alternatives each: at once but slow, or late but fast. Marks tell them apart.
  const auto draft_of = [](const std::vector<std::vector<Pace>>& paces) {
    Draft draft;
    int mark = 0;
    for (const auto& each : paces) {
      draft.pipelines.emplace_back();
      for (const Pace& pace : each) {
        draft.pipelines.back().push_back(
            {.pace = pace, .stages = {{.group = {mark}, .first_segment = 0, .last_segment = 4}}});
        ++mark;
      }
    }
    return draft;
  };
  const std::vector<Draft> drafts = {
      draft_of({{{2, 2}, {1, 6}}, {{1, 1}, {0.5, 9}}, {{3, 3}}}),
      draft_of({{{1, 30}}, {{1, 1}}, {{1, 1}}}),
      draft_of({{{1, 4}, {4, 1}}, {{1, 4}, {4, 1}}}),
      draft_of({{{5, 50}}, {{5, 60}}, {{5, 55}}}),
  };
  for (size_t number = 0; number < drafts.size(); ++number) {
    for (const int microbatches : {1, 2, 5, 9}) {
      const auto problem = ProblemOf(
          {.graph = &graph, .cluster = ClusterOf({1, 1, 1}), .microbatches = microbatches});
      const Plan plan = PlanOf(*problem, drafts[number]);
      double slowest = 0;
      int next = 0;
      int before = microbatches;
      for (const program::Pipeline& pipeline : plan.pipelines) {
        EXPECT_GT(pipeline.microbatches, 0);
        EXPECT_LE(pipeline.microbatches, before);
        EXPECT_EQ(pipeline.first_microbatch, next);
        next += pipeline.microbatches;
        before = pipeline.microbatches;
        for (const auto& alternatives : drafts[number].pipelines) {
          const auto place = std::find_if(
              alternatives.begin(), alternatives.end(),
              [&](const auto& alternative) { return alternative.stages == pipeline.stages; });
          if (place != alternatives.end()) {
            double own = std::numeric_limits<double>::infinity();
            for (const Draft::Alternative& alternative : alternatives) {
              own = std::min(own, alternative.pace.fill + (next - pipeline.first_microbatch - 1) *
                                                              alternative.pace.period);
            }
            const double taken =
                place->pace.fill + (pipeline.microbatches - 1) * place->pace.period;
            EXPECT_EQ(taken, own);  // The better of its alternatives.
            slowest = std::max(slowest, taken);
          }
        }
      }
      EXPECT_EQ(next, microbatches);
      EXPECT_EQ(slowest, LeastTime(drafts[number], 0, microbatches))
          << "draft " << number << ", " << microbatches;
    }
  }
}

}  // namespace
}  // namespace heddle::planner
