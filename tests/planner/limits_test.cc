/// \file
/// Memory limits: each worker's own is held, whichever worker it is; recomputation is switched on
/// exactly where it is needed; what the predicates say is what a simulation finds.
#include <algorithm>

#include <gtest/gtest.h>

#include "planner/search/improve.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Plan;
using program::Stage;

/// One pipeline of stages of equal numbers of segments on "w0", "w1", ….
Plan Chain(int segments, int stages, int microbatches) {
  Plan plan;
  plan.pipelines = {{.stages = {}, .microbatches = microbatches}};
  for (int j = 0; j < stages; ++j) {
    plan.workers.push_back(fmt::format("w{}", j));
    plan.pipelines[0].stages.push_back({.group = {j},
                                        .first_segment = segments * j / stages,
                                        .last_segment = segments * (j + 1) / stages});
  }
  return plan;
}

Simulation Simulated(const graph::Graph& graph, const Plan& plan, const ClusterProfile& cluster) {
  Result<Simulation> simulation = ScorePlan(graph, plan, cluster);
  EXPECT_TRUE(simulation.ok()) << simulation.status().ToString();
  return *std::move(simulation);
}

std::unique_ptr<Problem> ProblemOf(const SearchRequest& request) {
  auto problem = MakeProblem(request);
  EXPECT_TRUE(problem.ok()) << problem.status().ToString();
  return *std::move(problem);
}

TEST(LimitsTest, ReplicasThatFitOnlyWithADividedOptimizerArePlanned) {
  graph::Graph graph = LlamaGraph({.layers = 2});
  graph.optimizer.slices = 16;
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1, 1, 1}), .microbatches = 8};
  request.divides_optimizer = true;
  const Result<Plan> free = FindPlan(request);
  ASSERT_TRUE(free.ok()) << free.status().ToString();
  ASSERT_EQ(free->pipelines.size(), 4U) << "each worker takes the whole model";
  const int64_t most = *std::ranges::max_element(free->predicted_peak_bytes);
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = most;
  }
  const Result<Plan> divided = FindPlan(request);
  ASSERT_TRUE(divided.ok()) << divided.status().ToString();
  EXPECT_EQ(divided->pipelines, free->pipelines);
  EXPECT_EQ(divided->predicted_peak_bytes, Simulated(graph, *divided, request.cluster).peak_bytes);
  request.divides_optimizer = false;
  const Result<Plan> whole = FindPlan(request);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_LT(whole->pipelines.size(), 4U);
  for (const int64_t peak : whole->predicted_peak_bytes) {
    EXPECT_LE(peak, most);
  }
}

TEST(LimitsTest, TheOneWorkerWithLittleMemoryGetsNoMoreWhicheverItsRank) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const int segments = static_cast<int>(graph.segments.size());
  const ClusterProfile equal = ClusterOf({1, 1, 1});
  const int64_t whole =
      Simulated(graph, program::SingleWorkerPlan("w0", segments, 6), equal).peak_bytes[0];
  for (size_t rank = 0; rank < 3; ++rank) {
    SearchRequest request{.graph = &graph, .cluster = equal, .microbatches = 6};
    // Alone, each worker would take the whole model: three pipelines.
    EXPECT_EQ(FindPlan(request)->pipelines.size(), 3U);
    request.cluster.workers[rank].memory_bytes = whole / 2;
    const Result<Plan> plan = FindPlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const Simulation simulation = Simulated(graph, *plan, request.cluster);
    EXPECT_LE(simulation.peak_bytes[rank], whole / 2) << "rank " << rank;
    EXPECT_EQ(plan->predicted_peak_bytes, simulation.peak_bytes);
    const Result<Plan> grid = UniformGrid(request);
    ASSERT_TRUE(grid.ok()) << grid.status().ToString();
    EXPECT_LE(Simulated(graph, *grid, request.cluster).peak_bytes[rank], whole / 2);
  }
}

TEST(LimitsTest, AStageFitsExactlyFromWhatItsSimulationNeeds) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  const int segments = static_cast<int>(graph.segments.size());
  for (const int stages : {1, 2, 3}) {
    for (const bool recompute : {false, true}) {
      Plan plan = Chain(segments, stages, 4);
      for (Stage& stage : plan.pipelines[0].stages) {
        stage.recompute = recompute;
      }
      SearchRequest request{.graph = &graph,
                            .cluster = ClusterOf(std::vector<double>(plan.workers.size(), 1)),
                            .microbatches = 4};
      const Simulation simulation = Simulated(graph, plan, request.cluster);
      for (size_t j = 0; j < plan.workers.size(); ++j) {
        const StageShape shape = ShapeOf(plan, plan.pipelines[0], j);
        const int64_t peak = simulation.peak_bytes[j];
        const auto problem = ProblemOf(request);
        const int64_t needed = problem->memory->PeakBytes(shape);
        EXPECT_EQ(needed, peak) << "stage " << j << " of " << stages;
        EXPECT_TRUE(problem->memory->Fits(needed, shape));
        EXPECT_FALSE(problem->memory->Fits(needed - 1, shape));
        EXPECT_TRUE(problem->memory->Fits(needed * 100, shape));
        EXPECT_FALSE(problem->memory->Fits(needed / 100, shape));
        EXPECT_TRUE(problem->Fits(static_cast<int>(j), shape));  // No limit.
        request.cluster.workers[j].memory_bytes = needed - 1;
        EXPECT_FALSE(ProblemOf(request)->Fits(static_cast<int>(j), shape));
        EXPECT_FALSE(FitsMemory(*ProblemOf(request), plan));
        request.cluster.workers[j].memory_bytes = needed;
        EXPECT_TRUE(ProblemOf(request)->Fits(static_cast<int>(j), shape));
        EXPECT_TRUE(FitsMemory(*ProblemOf(request), plan));
        request.cluster.workers[j].memory_bytes = 0;
      }
    }
  }
}

TEST(LimitsTest, RecomputationIsOnExactlyWhereMemoryDemandsIt) {
  const graph::Graph graph = LlamaGraph({.layers = 4, .hidden = 32, .sequence = 512});
  const int segments = static_cast<int>(graph.segments.size());
  const Plan plain = Chain(segments, 2, 8);
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1}), .microbatches = 8};
  const auto free = ProblemOf(request);
  const auto bytes = [&](size_t j, bool recompute) {
    StageShape shape = ShapeOf(plain, plain.pipelines[0], j);
    shape.recompute = recompute;
    return free->memory->PeakBytes(shape);
  };
  for (const size_t tight : {size_t{0}, size_t{1}}) {
    ASSERT_LT(bytes(tight, true), bytes(tight, false));
    request.cluster = ClusterOf({1, 1});
    request.cluster.workers[tight].memory_bytes = bytes(tight, false) - 1;
    Plan plan = plain;
    plan.pipelines[0].stages[1 - tight].recompute = true;  // Not needed: switched off.
    ASSERT_TRUE(SettleMemory(*ProblemOf(request), plan));
    EXPECT_TRUE(plan.pipelines[0].stages[tight].recompute);
    EXPECT_FALSE(plan.pipelines[0].stages[1 - tight].recompute);
    request.cluster.workers[tight].memory_bytes = bytes(tight, true) - 1;
    EXPECT_FALSE(SettleMemory(*ProblemOf(request), plan));
  }
}

TEST(LimitsTest, SharesMoveFromWorkersThatLackTheMemoryToTheOthers) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const int segments = static_cast<int>(graph.segments.size());
  Plan plan;
  plan.workers = {"w0", "w1"};
  for (const int p : {0, 1}) {
    plan.pipelines.push_back(
        {.stages = {{.group = {p}, .first_segment = 0, .last_segment = segments}},
         .first_microbatch = 8 * p,
         .microbatches = 8});
  }
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1}), .microbatches = 16};
  EXPECT_EQ(RepairShares(*ProblemOf(request), plan)->pipelines, plan.pipelines);
  // Room for the partial sums of four microbatches, not of eight.
  StageShape shape = ShapeOf(plan, plan.pipelines[0], 0);
  const int64_t eight = ProblemOf(request)->memory->PeakBytes(shape);
  shape.microbatches = 7;
  const int64_t seven = ProblemOf(request)->memory->PeakBytes(shape);
  ASSERT_LT(seven, eight);
  for (const size_t tight : {size_t{0}, size_t{1}}) {
    request.cluster = ClusterOf({1, 1});
    request.cluster.workers[tight].memory_bytes = seven;
    const std::optional<Plan> repaired = RepairShares(*ProblemOf(request), plan);
    ASSERT_TRUE(repaired.has_value());
    ASSERT_EQ(repaired->pipelines.size(), 2U);
    // From microbatch 9 on, seven leave one partial sum more: the second pipeline computes as many
    // as fit from anywhere.
    StageShape anywhere = shape;
    anywhere.first_microbatch = program::kWorstFirstMicrobatch;
    while (ProblemOf(request)->memory->PeakBytes(anywhere) > seven) {
      --anywhere.microbatches;
    }
    ASSERT_EQ(anywhere.microbatches, 4);
    EXPECT_EQ(repaired->pipelines[tight].microbatches, tight == 0 ? 7 : 4);
    EXPECT_EQ(repaired->microbatches(), 16);
    EXPECT_EQ(repaired->pipelines[1].first_microbatch, repaired->pipelines[0].microbatches);
  }
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = seven;
  }
  EXPECT_FALSE(RepairShares(*ProblemOf(request), plan).has_value());
}

TEST(LimitsTest, SlackIsGivenAsFarAsTheMemoryGoes) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  const int segments = static_cast<int>(graph.segments.size());
  Plan plan = Chain(segments, 3, 16);
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1, 1}), .microbatches = 16};
  const auto ahead = [&] {
    std::vector<int> each;
    for (const Stage& stage : plan.pipelines[0].stages) {
      each.push_back(stage.ahead);
    }
    return each;
  };
  GiveSlack(*ProblemOf(request), 2, plan);
  EXPECT_EQ(ahead(), (std::vector<int>{2, 2, 0}));
  // Memory for one ahead at the first stage: the second has no more.
  StageShape shape = ShapeOf(plan, plan.pipelines[0], 0);
  shape.ahead = 1;
  request.cluster.workers[0].memory_bytes = ProblemOf(request)->memory->PeakBytes(shape);
  const auto limited = ProblemOf(request);
  GiveSlack(*limited, 2, plan);
  EXPECT_EQ(ahead(), (std::vector<int>{1, 1, 0}));
}

TEST(UniformGridTest, DealsSegmentsMicrobatchesAndWorkersEvenly) {
  const graph::Graph graph = LlamaGraph({.layers = 5});
  const int segments = static_cast<int>(graph.segments.size());
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1, 1, 1}), .microbatches = 7};
  const int64_t whole =
      Simulated(graph, program::SingleWorkerPlan("w0", segments, 7), ClusterOf({1})).peak_bytes[0];
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = whole * 3 / 4;  // Two stages at least.
  }
  const Result<Plan> grid = UniformGrid(request);
  ASSERT_TRUE(grid.ok()) << grid.status().ToString();
  ASSERT_EQ(grid->pipelines.size(), 2U);
  EXPECT_EQ(grid->pipelines[0].microbatches, 4);
  EXPECT_EQ(grid->pipelines[1].microbatches, 3);
  EXPECT_EQ(grid->pipelines[1].first_microbatch, 4);
  for (int p = 0; p < 2; ++p) {
    const std::vector<Stage>& stages = grid->pipelines[static_cast<size_t>(p)].stages;
    ASSERT_EQ(stages.size(), 2U);
    for (int j = 0; j < 2; ++j) {
      EXPECT_EQ(stages[static_cast<size_t>(j)].worker(), 2 * p + j);
    }
    EXPECT_EQ(stages[0].last_segment, (segments + 1) / 2);
    EXPECT_EQ(stages[1].first_segment, (segments + 1) / 2);
    EXPECT_EQ(stages[1].last_segment, segments);
  }
  EXPECT_EQ(grid->predicted_step_seconds, Simulated(graph, *grid, request.cluster).step_seconds);
}

TEST(UniformGridTest, TakesTheFastestDepth) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  ASSERT_EQ(graph.segments.size(), 10U);
  // By depth: the ends of the stages; the first ones have a segment more.
  const std::vector<std::vector<int>> ends = {{10}, {5, 10}, {3, 6, 8, 10}};
  std::vector<size_t> chosen;
  for (const double bytes_per_second : {1e5, 1e6, 1e7, 1e12}) {
    const SearchRequest request{.graph = &graph,
                                .cluster = ClusterOf({1, 1, 1, 1}, bytes_per_second, 0),
                                .microbatches = 16};
    double fastest = 0;
    for (const std::vector<int>& cuts : ends) {
      const int depth = static_cast<int>(cuts.size());
      Plan plan = Chain(10, 4, 16);
      plan.pipelines.clear();
      for (int p = 0; p < 4 / depth; ++p) {
        const int share = 16 * depth / 4;
        plan.pipelines.push_back(
            {.stages = {}, .first_microbatch = p * share, .microbatches = share});
        for (int j = 0; j < depth; ++j) {
          const auto at = static_cast<size_t>(j);
          plan.pipelines.back().stages.push_back({.group = {p * depth + j},
                                                  .first_segment = j == 0 ? 0 : cuts[at - 1],
                                                  .last_segment = cuts[at]});
        }
      }
      const double seconds = Simulated(graph, plan, request.cluster).step_seconds;
      fastest = fastest == 0 ? seconds : std::min(fastest, seconds);
    }
    const Result<Plan> grid = UniformGrid(request);
    ASSERT_TRUE(grid.ok()) << grid.status().ToString();
    EXPECT_EQ(grid->predicted_step_seconds, fastest) << "at " << bytes_per_second;
    chosen.push_back(grid->pipelines.size());
  }
  EXPECT_NE(chosen.front(), chosen.back());
  SearchRequest poor{.graph = &graph, .cluster = ClusterOf({1, 1, 1, 1}), .microbatches = 16};
  poor.cluster.workers[3].memory_bytes = 1000;
  EXPECT_EQ(UniformGrid(poor).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::planner
