/// \file
/// What a search says beside the plan: the bound, the plans that lost and why, the one message when
/// nothing fits, and the text for people, word by word; and that it keeps the limits it is given.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "base/units.h"
#include "planner/search/improve.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Plan;

TEST(OutcomeTest, TheBoundIsAllWorkersSpeedsTogether) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 0.5, 0.25}), .microbatches = 6};
  request.cluster.workers[1].instruction_seconds = 1e-4;
  request.cluster.workers[2].seconds["fold"] = 1e-7;
  const Result<SearchOutcome> outcome = Search(request);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  double speed = 0;
  for (const program::WorkerProfile& worker : request.cluster.workers) {
    double seconds = 0;
    for (const graph::Node& node : graph.nodes) {
      seconds += worker.Seconds(graph, node) + worker.instruction_seconds;
      for (const graph::TensorId output : node.outputs) {
        if (graph.tensor(output).kind == graph::TensorKind::kWeightGradient) {
          seconds += worker.ByteSeconds("fold", graph.tensor(output).type.bytes()) +
                     worker.instruction_seconds;
        }
      }
    }
    speed += 1 / seconds;
  }
  EXPECT_NEAR(outcome->bound_seconds, 6 / speed, 1e-9 * outcome->bound_seconds);
  EXPECT_TRUE(outcome->simulated);
  EXPECT_EQ(outcome->plan.predicted_step_seconds, outcome->simulation.step_seconds);
  EXPECT_EQ(outcome->plan.predicted_peak_bytes, outcome->simulation.peak_bytes);
  const auto again = ScorePlan(graph, outcome->plan, request.cluster);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->step_seconds, outcome->simulation.step_seconds);
  EXPECT_EQ(again->busy, outcome->simulation.busy);
}

std::pair<size_t, size_t> KindOf(const Plan& plan) {
  return {plan.pipelines.size(), plan.IdleWorkers().size()};
}

TEST(OutcomeTest, AlternativesAreOfOtherKindsAndSayWhyTheyLost) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  size_t most = 0;
  std::set<std::string> reasons;
  const std::vector<std::pair<ClusterProfile, double>> cases = {
      {ClusterOf({1, 1}), 0},
      {ClusterOf({1, 1, 0.01}, 1e7), 0},
      {ClusterOf({1, 0.5, 0.5, 0.2}), 0},
      {ClusterOf({1, 0.9, 0.8, 0.7, 0.6}, 3e6), 0},
      {ClusterOf({1, 1, 1, 1, 0.01}, 2e7), 0},
      {ClusterOf({1, 1, 1, 1, 0.01}, 2e7), 0.5}};
  for (const auto& [cluster, tie] : cases) {
    const SearchRequest request{.graph = &graph, .cluster = cluster, .microbatches = 8, .tie = tie};
    const Result<SearchOutcome> outcome = Search(request);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    most = std::max(most, outcome->alternatives.size());
    const auto [chosen, idle] = KindOf(outcome->plan);
    std::set<std::pair<size_t, size_t>> kinds = {{chosen, idle}};
    for (const Alternative& other : outcome->alternatives) {
      EXPECT_TRUE(kinds.insert(KindOf(other.plan)).second) << Explain(request, *outcome);
      EXPECT_TRUE(program::ValidatePlan(other.plan, static_cast<int>(graph.segments.size())).ok());
      const auto [pipelines, left_out] = KindOf(other.plan);
      std::string why = "has deeper pipelines, which take longer to fill and drain";
      if (other.step_seconds <= outcome->plan.predicted_step_seconds) {
        why = "is no faster within the precision of profiles";
      } else if (left_out > idle) {
        why = fmt::format("leaves {} of {} workers out", left_out, cluster.workers.size());
      } else if (left_out < idle) {
        why = "waits for workers that are too slow to help";
      } else if (pipelines > chosen) {
        why = "reduces the gradients over more pipelines";
      }
      EXPECT_EQ(other.why, why);
      reasons.insert(why.substr(0, 6));
    }
    EXPECT_LE(outcome->alternatives.size(), 4U);
  }
  EXPECT_EQ(most, 4U);
  EXPECT_EQ(reasons.size(), 5U);
}

/// Most that one segment takes alone on a worker, recomputed, of one microbatch.
int64_t LargestSegment(const graph::Graph& graph) {
  const int segments = static_cast<int>(graph.segments.size());
  int64_t largest = 0;
  for (int s = 0; s < segments; ++s) {
    Plan plan;
    plan.pipelines = {{.stages = {}, .microbatches = 1}};
    size_t place = 0;
    for (const auto& [first, last] :
         std::vector<std::pair<int, int>>{{0, s}, {s, s + 1}, {s + 1, segments}}) {
      if (first == last) {
        continue;
      }
      place = first == s ? plan.workers.size() : place;
      plan.pipelines[0].stages.push_back({.group = {static_cast<int>(plan.workers.size())},
                                          .first_segment = first,
                                          .last_segment = last,
                                          .recompute = first == s});
      plan.workers.push_back(fmt::format("w{}", plan.workers.size()));
    }
    const auto simulation =
        ScorePlan(graph, plan, ClusterOf(std::vector<double>(plan.workers.size(), 1)));
    EXPECT_TRUE(simulation.ok());
    largest = std::max(largest, simulation->peak_bytes[place]);
  }
  return largest;
}

TEST(OutcomeTest, WhatDoesNotFitSaysWhatIsNeededAndWhatThereIs) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  int64_t state = 0;
  for (const graph::Parameter& parameter : graph.parameters) {
    state += 12 * ElementCount(parameter.shape);
  }
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1, 1}), .microbatches = 4};
  request.cluster.workers[0].memory_bytes = 10000;
  request.cluster.workers[1].memory_bytes = 30000;
  request.cluster.workers[2].memory_bytes = 20000;
  EXPECT_EQ(Search(request).status().message(),
            fmt::format("no combination of the 3 workers has the memory for the model: its state "
                        "alone takes {}, one segment on one worker at least {}; the workers have "
                        "60kB together, at most 30kB each",
                        FormatByteSize(ByteSize{state}),
                        FormatByteSize(ByteSize{LargestSegment(graph)})));
}

TEST(OutcomeTest, PipelinesAreNoDeeperThanTheLimit) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 128, .sequence = 16});
  // Gradients are dear: without a limit one deep pipeline is best.
  SearchRequest request{
      .graph = &graph, .cluster = ClusterOf({1, 1, 1, 1, 1}, 1e7), .microbatches = 10};
  const auto deepest = [&] {
    const Result<Plan> plan = FindPlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    size_t depth = 0;
    for (const program::Pipeline& pipeline : plan->pipelines) {
      depth = std::max(depth, pipeline.stages.size());
    }
    return depth;
  };
  EXPECT_EQ(deepest(), 5U);
  for (const int depth : {1, 2, 3}) {
    request.limits.max_depth = depth;
    EXPECT_LE(deepest(), static_cast<size_t>(depth));
  }
}

TEST(OutcomeTest, FewDivisionsAndFewEvaluationsStillGiveAGoodPlan) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  SearchRequest request{
      .graph = &graph, .cluster = ClusterOf({1, 0.8, 0.5, 0.4, 0.2}), .microbatches = 24};
  const Result<Plan> best = FindPlan(request);
  ASSERT_TRUE(best.ok());
  for (const int simulated : {0, 1, 6}) {
    request.limits = {.max_divisions = 1,
                      .simulated_candidates = simulated,
                      .estimates = simulated * 100,
                      .simulated_instructions = simulated * 10000};
    const Result<Plan> plan = FindPlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_TRUE(program::ValidatePlan(*plan, static_cast<int>(graph.segments.size())).ok());
    EXPECT_LE(plan->predicted_step_seconds, 1.15 * best->predicted_step_seconds);
  }
}

TEST(OutcomeTest, WhatFitsIsFoundWhereQuickFiguresOfMemoryMislead) {
  const graph::Graph graph = LlamaGraph({.layers = 1, .hidden = 32, .sequence = 32});
  // Every plan that the quick figures allow needs more, and leaving room for it allows none: only
  // bounds on the memory of each plan lead to one that fits.
  const std::vector<std::pair<int, std::vector<int64_t>>> cases = {
      {10, {328344, 604286}}, {15, {357544, 549929}}, {11, {536070, 342832}},
      {5, {371837, 545473}},  {7, {370673, 552683}},  {17, {517067, 705879}}};
  for (const auto& [microbatches, memory] : cases) {
    SearchRequest request{
        .graph = &graph, .cluster = ClusterOf({1, 1}), .microbatches = microbatches};
    for (size_t rank = 0; rank < 2; ++rank) {
      request.cluster.workers[rank].memory_bytes = memory[rank];
    }
    const Result<Plan> plan = FindPlan(request);
    ASSERT_TRUE(plan.ok()) << microbatches << ": " << plan.status().ToString();
    const auto simulation = ScorePlan(graph, *plan, request.cluster);
    ASSERT_TRUE(simulation.ok());
    EXPECT_EQ(simulation->peak_bytes, plan->predicted_peak_bytes);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_LE(simulation->peak_bytes[rank], memory[rank]) << microbatches;
    }
  }
}

TEST(OutcomeTest, StagesGoFurtherAheadAsLongAsItPays) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  Plan whole = program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), 16);
  whole.pipelines[0].stages[0].recompute = true;
  const auto alone = ScorePlan(graph, whole, ClusterOf({1}));
  ASSERT_TRUE(alone.ok());
  int furthest = 0;
  for (const double latency : {0.01, 0.3, 0.6, 1.0, 3.0}) {  // Of a microbatch's time.
    SearchRequest request{.graph = &graph,
                          .cluster = ClusterOf({1, 1}, 5e9, latency * alone->step_seconds / 16),
                          .microbatches = 16};
    for (program::WorkerProfile& worker : request.cluster.workers) {
      worker.memory_bytes = alone->peak_bytes[0] * 9 / 10;  // Two stages.
    }
    const Result<Plan> plan = FindPlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const int ahead = plan->pipelines[0].stages[0].ahead;
    furthest = std::max(furthest, ahead);
    const auto problem = MakeProblem(request);
    ASSERT_TRUE(problem.ok());
    const auto seconds = [&](int most) {
      Plan other = *plan;
      GiveSlack(**problem, most, other);
      return ScorePlan(graph, other, request.cluster)->step_seconds;
    };
    EXPECT_EQ(plan->predicted_step_seconds, seconds(ahead));
    EXPECT_LE(ahead, 6);
    for (int most = 3; most <= ahead; ++most) {
      EXPECT_LE(seconds(most), 0.995 * seconds(most - 1)) << latency;
    }
    Plan more = *plan;
    GiveSlack(**problem, ahead + 1, more);
    if (ahead >= 2 && ahead < 6 && more.pipelines[0].stages[0].ahead > ahead) {
      EXPECT_GT(seconds(ahead + 1), 0.995 * seconds(ahead)) << latency;
    }
  }
  EXPECT_GT(furthest, 2);
}

TEST(OutcomeTest, TheTextForPeopleIsThis) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  ClusterProfile cluster = ClusterOf({1, 1, 1});
  cluster.workers[1].memory_bytes = 64 << 10;
  // In another order than the plan's.
  std::swap(cluster.workers[0], cluster.workers[2]);
  const SearchRequest request{.graph = &graph, .cluster = cluster, .microbatches = 4};
  SearchOutcome outcome;
  outcome.plan = program::SingleWorkerPlan("w0", 4, 4);
  outcome.plan.workers = {"w0", "w1", "w2"};
  outcome.plan.predicted_step_seconds = 0.5;
  outcome.simulated = true;
  outcome.bound_seconds = 0.125;
  outcome.simulation.step_seconds = 0.5;
  outcome.simulation.busy = {0.25, 0.125};
  outcome.simulation.peak_bytes = {3 << 20, 2048};
  outcome.simulation.exposed_reduction_seconds = 0.0625;
  Alternative other{.plan = outcome.plan, .step_seconds = 0.6, .why = "is slower"};
  other.plan.pipelines.push_back(other.plan.pipelines[0]);
  other.plan.pipelines[1].stages[0].group = {2};
  outcome.alternatives = {other};
  outcome.plan.predicted_process_bytes = {200 << 20, (300 << 20) + 4096};
  const std::string plan = program::Describe(outcome.plan, graph);
  EXPECT_EQ(Explain(request, outcome),
            plan +
                "predicted step: 0.5 s\n"
                "fraction of the workers' summed speeds: 25.0 %\n"
                "gradient reduction not hidden: 0.0625 s\n"
                "workers:\n"
                "  w0: memory 3MiB of unlimited, busy 50.0 %, process 200MiB\n"
                "  w1: memory 2KiB of 64KiB, busy 25.0 %, process 300MiB\n"
                "  w2: memory 0B of unlimited\n"
                "left out, because the step is faster without them: 2\n"
                "not chosen: 2 pipelines, 1 workers idle: 0.6 s (+20.0 %): is slower\n"
                "contention of several workers for one host's cores is not modelled\n");
  outcome.plan = program::SingleWorkerPlan("w0", 4, 4);
  outcome.simulated = false;
  outcome.simulation.step_seconds = 0;
  outcome.alternatives.clear();
  EXPECT_EQ(Explain(request, outcome),
            program::Describe(outcome.plan, graph) +
                "predicted step: 0 s (estimated by stage)\n"
                "fraction of the workers' summed speeds: 0.0 %\n"
                "workers:\n"
                "  w0: memory 3MiB of unlimited\n"
                "contention of several workers for one host's cores is not modelled\n");
}

}  // namespace
}  // namespace heddle::planner
