/// \file
/// A plan that is found in a hurry after a loss, against the one of a whole search: on random
/// clusters it is about as fast, and a worker with little memory is not given more.
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "planner/search/search.h"
#include "tests/planner/support.h"
#include "tests/support/seed.h"

namespace heddle::planner {
namespace {

using program::Plan;

constexpr int kClusters = 6;
constexpr double kWorst = 1.4;
constexpr double kUsual = 1.08;

// Without the workers from `left` on, the plan that ran with them going before.
SearchRequest AfterALoss(const SearchRequest& before, const Plan& ran, size_t left) {
  SearchRequest request = before;
  request.cluster.workers.resize(left);
  request.cluster.links = comm::LinkTable(static_cast<int>(left));
  for (int from = 0; from < static_cast<int>(left); ++from) {
    for (int to = 0; to < static_cast<int>(left); ++to) {
      request.cluster.links.At(from, to) = before.cluster.links.At(from, to);
    }
  }
  request.previous = ran;
  request.horizon_steps = 200;
  return request;
}

TEST(HurriedSearchTest, AfterALossThePlanIsAboutAsGood) {
  Random random(testing::TestSeed());
  const graph::Graph graph = LlamaGraph({.layers = 4, .hidden = 64, .sequence = 32});
  double log_sum = 0;
  for (int i = 0; i < kClusters; ++i) {
    const auto workers = static_cast<size_t>(3 + random.Uniform() * 5);
    std::vector<double> speeds;
    for (size_t worker = 0; worker < workers; ++worker) {
      speeds.push_back(0.2 + random.Uniform());
    }
    const double bandwidth = std::pow(10, 6 + 4 * random.Uniform());
    const SearchRequest before{
        .graph = &graph, .cluster = ClusterOf(speeds, bandwidth), .microbatches = 12};
    const Result<Plan> ran = FindPlan(before);
    ASSERT_TRUE(ran.ok()) << ran.status().ToString();
    const auto lost = static_cast<size_t>(1 + random.Uniform() * 2);
    SearchRequest after = AfterALoss(before, *ran, workers - std::min(lost, workers - 1));
    const Result<Plan> whole = FindPlan(after);
    after.limits = SearchLimits::Hurried();
    const Result<Plan> hurried = FindPlan(after);
    ASSERT_TRUE(whole.ok() && hurried.ok());
    const double ratio = hurried->predicted_step_seconds / whole->predicted_step_seconds;
    EXPECT_LE(ratio, kWorst) << workers << " workers, " << bandwidth << " B/s";
    log_sum += std::log(ratio);
  }
  const double mean = std::exp(log_sum / kClusters);
  std::printf("a hurried plan's step takes %.4f times as long, on average\n", mean);
  EXPECT_LE(mean, kUsual);
}

TEST(HurriedSearchTest, MemoryHolds) {
  const graph::Graph graph = LlamaGraph({.layers = 4});
  SearchRequest before{.graph = &graph, .cluster = ClusterOf({1, 1, 1, 1}), .microbatches = 8};
  const Result<Plan> ran = FindPlan(before);
  ASSERT_TRUE(ran.ok());
  const int64_t whole = ran->predicted_peak_bytes[0];
  SearchRequest after = AfterALoss(before, *ran, 3);
  after.cluster.workers[1].memory_bytes = whole / 2;
  after.limits = SearchLimits::Hurried();
  const Result<Plan> plan = FindPlan(after);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_LE(plan->predicted_peak_bytes[1], whole / 2);
}

}  // namespace
}  // namespace heddle::planner
