/// \file
/// What FindPlan promises beyond optimality: who is left out, limits, warm starts, determinism,
/// errors, and clusters of a thousand workers.
#include "planner/search/search.h"

#include <algorithm>
#include <ctime>

#include <gtest/gtest.h>

#include "base/random.h"
#include "planner/search/problem.h"
#include "tests/planner/support.h"
#include "tests/support/seed.h"

namespace heddle::planner {
namespace {

using program::Plan;

TEST(SearchTest, AVerySlowWorkerIsLeftOut) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const SearchRequest request{
      .graph = &graph, .cluster = ClusterOf({1, 1, 0.001}), .microbatches = 16};
  const Result<Plan> plan = FindPlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->IdleWorkers(), std::vector<int>{2});
}

TEST(SearchTest, SlowLinksTurnDataParallelIntoPipelines) {
  // Wide layers and few tokens: gradients are much larger than activations.
  const graph::Graph graph = LlamaGraph({.layers = 4, .hidden = 128, .sequence = 16});
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1}), .microbatches = 16};
  const Result<Plan> fast = FindPlan(request);
  request.cluster = ClusterOf({1, 1}, 2e7);
  const Result<Plan> slow = FindPlan(request);
  ASSERT_TRUE(fast.ok() && slow.ok());
  EXPECT_EQ(fast->pipelines.size(), 2u);
  EXPECT_EQ(slow->pipelines.size(), 1u);
  EXPECT_EQ(slow->pipelines[0].stages.size(), 2u);
}

TEST(SearchTest, MoreBandwidthNeverHurtsMuch) {
  Random random(testing::TestSeed());
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 64, .sequence = 32});
  for (int i = 0; i < 4; ++i) {
    const std::vector<double> speeds = {0.2 + random.Uniform(), 0.2 + random.Uniform(),
                                        0.2 + random.Uniform()};
    double before = 1e300;
    for (double bandwidth = 1e6; bandwidth < 1e10; bandwidth *= 10) {
      const SearchRequest request{
          .graph = &graph, .cluster = ClusterOf(speeds, bandwidth), .microbatches = 8};
      const Result<Plan> plan = FindPlan(request);
      ASSERT_TRUE(plan.ok());
      EXPECT_LE(plan->predicted_step_seconds, before * 1.01) << "at " << bandwidth;
      before = plan->predicted_step_seconds;
    }
  }
}

TEST(SearchTest, EqualInputGivesAnEqualPlan) {
  const graph::Graph graph = LlamaGraph({.layers = 3});
  const SearchRequest request{.graph = &graph,
                              .cluster = ClusterOf({0.6, 0.6, 0.3, 0.15}, 1e8),
                              .microbatches = 12,
                              .generation = 7};
  const Result<Plan> first = FindPlan(request);
  const Result<Plan> second = FindPlan(request);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(program::PlanToJson(*first), program::PlanToJson(*second));
  EXPECT_EQ(first->generation, 7);
  EXPECT_TRUE(program::ValidatePlan(*first, static_cast<int>(graph.segments.size())).ok());
}

TEST(SearchTest, ASearchThatIsStoppedHasNoPlan) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1, 0.5}), .microbatches = 8};
  std::stop_source source;
  request.stop = source.get_token();
  EXPECT_TRUE(Search(request).ok());
  source.request_stop();
  EXPECT_EQ(Search(request).status().code(), StatusCode::kCancelled);
}

TEST(SearchTest, RanksFollowTheGivenNames) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const SearchRequest request{.graph = &graph,
                              .cluster = ClusterOf({0.001, 1, 1, 1}),
                              .workers = {"w3", "w0", "w1"},
                              .microbatches = 8};
  const Result<Plan> plan = FindPlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->workers, request.workers);
  EXPECT_EQ(plan->IdleWorkers(), std::vector<int>{1});
  EXPECT_EQ(plan->transports[0][1], "tcp");
}

TEST(SearchTest, AModelThatFitsNowhereIsOneClearError) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1, 1}), .microbatches = 4};
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = 10000;
  }
  const Result<Plan> plan = FindPlan(request);
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(plan.status().message().find("no combination of the 2 workers has the memory"),
            std::string::npos)
      << plan.status().message();
  EXPECT_EQ(plan.status().message().find('\n'), std::string::npos);
}

TEST(SearchTest, MalformedRequestsAreErrors) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  const SearchRequest good{.graph = &graph, .cluster = ClusterOf({1, 1}), .microbatches = 4};
  SearchRequest request = good;
  request.graph = nullptr;
  EXPECT_EQ(FindPlan(request).status().code(), StatusCode::kInvalidArgument);
  request = good;
  request.microbatches = 0;
  EXPECT_EQ(FindPlan(request).status().code(), StatusCode::kInvalidArgument);
  request = good;
  request.workers = {"w0", "stranger"};
  EXPECT_EQ(FindPlan(request).status().code(), StatusCode::kInvalidArgument);
  request = good;
  request.cluster.links.At(0, 1).bytes_per_second = 0;
  EXPECT_EQ(FindPlan(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(SearchTest, MemoryDemandsRecomputation) {
  const graph::Graph graph = LlamaGraph({.layers = 4, .hidden = 32, .sequence = 512});
  const int segments = static_cast<int>(graph.segments.size());
  const Plan whole = program::SingleWorkerPlan("w0", segments, 4);
  Plan again = whole;
  again.pipelines[0].stages[0].recompute = true;
  const auto without = ScorePlan(graph, whole, ClusterOf({1}));
  const auto with = ScorePlan(graph, again, ClusterOf({1}));
  ASSERT_TRUE(without.ok() && with.ok());
  ASSERT_LT(with->peak_bytes[0], without->peak_bytes[0]);
  SearchRequest request{.graph = &graph, .cluster = ClusterOf({1}), .microbatches = 4};
  request.cluster.workers[0].memory_bytes = (with->peak_bytes[0] + without->peak_bytes[0]) / 2;
  const Result<Plan> plan = FindPlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->pipelines[0].stages[0].recompute);
  EXPECT_LE(plan->predicted_peak_bytes[0], request.cluster.workers[0].memory_bytes);
  request.cluster.workers[0].memory_bytes = without->peak_bytes[0];
  const Result<Plan> enough = FindPlan(request);
  ASSERT_TRUE(enough.ok());
  EXPECT_FALSE(enough->pipelines[0].stages[0].recompute);
}

TEST(SearchTest, MemoryThatIsLeftIsSpentOnMicrobatchesAhead) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  Plan whole = program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), 16);
  whole.pipelines[0].stages[0].recompute = true;
  const auto alone = ScorePlan(graph, whole, ClusterOf({1}));
  ASSERT_TRUE(alone.ok());
  // Too little memory for one worker, and links so slow to answer that 1F1B waits for them.
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf({1, 1}, 5e9, alone->step_seconds / 16 / 8),
                        .microbatches = 16};
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = alone->peak_bytes[0] * 9 / 10;
  }
  const Result<Plan> roomy = FindPlan(request);
  ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
  ASSERT_EQ(roomy->pipelines[0].stages.size(), 2U);
  EXPECT_GE(roomy->pipelines[0].stages[0].ahead, 1);
  Plan plain = *roomy;
  plain.pipelines[0].stages[0].ahead = 0;
  const auto without = ScorePlan(graph, plain, request.cluster);
  ASSERT_TRUE(without.ok());
  EXPECT_LT(roomy->predicted_step_seconds, 0.95 * without->step_seconds);
  const auto first = static_cast<size_t>(roomy->pipelines[0].stages[0].worker());
  EXPECT_GT(roomy->predicted_peak_bytes[first], without->peak_bytes[first]);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_LE(roomy->predicted_peak_bytes[rank], request.cluster.workers[rank].memory_bytes);
    request.cluster.workers[rank].memory_bytes = without->peak_bytes[rank];
  }
  // Now there is only what that plan needs without.
  const Result<Plan> tight = FindPlan(request);
  ASSERT_TRUE(tight.ok()) << tight.status().ToString();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_LE(tight->predicted_peak_bytes[rank], request.cluster.workers[rank].memory_bytes);
  }
}

TEST(SearchTest, AWarmStartKeepsWhatMovingWouldCost) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  SearchRequest request{
      .graph = &graph, .cluster = ClusterOf({1, 1, 1, 1}, 1e8), .microbatches = 16};
  request.cluster.workers[2].memory_bytes = 0;
  const Result<Plan> before = FindPlan(request);
  ASSERT_TRUE(before.ok());
  request.previous = *before;
  request.horizon_steps = 1;
  const Result<Plan> same = FindPlan(request);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->pipelines, before->pipelines);
  // One is lost: the next plan is as good as one found without the past.
  request.workers = {"w0", "w1", "w3"};
  request.horizon_steps = 1000000;
  const Result<Plan> warm = FindPlan(request);
  request.previous.reset();
  const Result<Plan> cold = FindPlan(request);
  ASSERT_TRUE(warm.ok() && cold.ok());
  EXPECT_LE(warm->predicted_step_seconds, cold->predicted_step_seconds * 1.005);
}

TEST(SearchTest, ExplainNamesEveryWorkerAndWhyOthersLost) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const SearchRequest request{
      .graph = &graph, .cluster = ClusterOf({1, 0.5, 0.5}), .microbatches = 8};
  const Result<SearchOutcome> outcome = Search(request);
  ASSERT_TRUE(outcome.ok());
  const std::string text = Explain(request, *outcome);
  for (const char* part : {"w0", "w1", "w2", "predicted step", "not chosen", "summed speeds"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(SearchTest, AThousandWorkersOfFourClassesTakeSeconds) {
  const graph::Graph graph = LlamaGraph({.layers = 8, .hidden = 256, .sequence = 256});
  std::vector<double> speeds;
  for (int i = 0; i < 1000; ++i) {
    speeds.push_back(std::vector<double>{1, 0.7, 0.4, 0.25}[static_cast<size_t>(i % 4)]);
  }
  const int microbatches = 8192;
  const SearchRequest request{
      .graph = &graph, .cluster = ClusterOf(speeds, 1.25e9), .microbatches = microbatches};
  const std::clock_t start = std::clock();  // Of the processor: the test shares its machine.
  const Result<SearchOutcome> outcome = Search(request);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  RecordProperty("seconds", std::to_string(seconds));
  RecordProperty("fraction",
                 std::to_string(outcome->bound_seconds / outcome->plan.predicted_step_seconds));
  EXPECT_TRUE(program::ValidatePlan(outcome->plan, static_cast<int>(graph.segments.size())).ok());
  EXPECT_EQ(outcome->plan.microbatches(), microbatches);
  EXPECT_GT(outcome->bound_seconds / outcome->plan.predicted_step_seconds, 0.75);
}

TEST(SearchTest, ManyUnlikeWorkersUnderMemoryLimits) {
  Random random(testing::TestSeed());
  const graph::Graph graph = LlamaGraph({.layers = 6, .hidden = 64, .sequence = 64});
  std::vector<double> speeds;
  for (int i = 0; i < 24; ++i) {
    speeds.push_back(0.2 + random.Uniform());
  }
  SearchRequest request{.graph = &graph, .cluster = ClusterOf(speeds), .microbatches = 128};
  const auto whole = ScorePlan(
      graph, program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), 128),
      ClusterOf({1}));
  ASSERT_TRUE(whole.ok());
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = static_cast<int64_t>(0.6 * static_cast<double>(whole->peak_bytes[0]));
  }
  const Result<SearchOutcome> outcome = Search(request);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  for (size_t rank = 0; rank < speeds.size(); ++rank) {
    EXPECT_LE(outcome->plan.predicted_peak_bytes[rank], request.cluster.workers[rank].memory_bytes);
  }
  const double fraction = outcome->bound_seconds / outcome->plan.predicted_step_seconds;
  RecordProperty("fraction", std::to_string(fraction));
  EXPECT_GT(fraction, 0.75) << Explain(request, *outcome);
  // Stages of unlike memory have unlike numbers of microbatches ahead: never such that they wait
  // for each other.
  Plan plain = outcome->plan;
  for (program::Pipeline& pipeline : plain.pipelines) {
    for (program::Stage& stage : pipeline.stages) {
      stage.ahead = 0;
    }
  }
  const auto without = ScorePlan(graph, plain, request.cluster);
  ASSERT_TRUE(without.ok()) << without.status().ToString();
  EXPECT_LE(outcome->plan.predicted_step_seconds, 1.01 * without->step_seconds);
}

}  // namespace
}  // namespace heddle::planner
