// Sums that devices make in memory which they read of each other: what they cost, and what plans make
// of it.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/cost/cost.h"
#include "engine/program/memory.h"
#include "planner/predictor/estimate.h"
#include "planner/predictor/exchange_cost.h"
#include "planner/predictor/simulator.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

constexpr double kLatency = 20e-6;

comm::LinkTable Peers(int workers, double bytes_per_second) {
  comm::LinkTable links(workers);
  for (int from = 0; from < workers; ++from) {
    for (int to = 0; to < workers; ++to) {
      links.At(from, to) = {.latency_seconds = kLatency,
                            .bytes_per_second = 2e9,
                            .peer_bytes_per_second = bytes_per_second};
    }
  }
  return links;
}

// Counts element by element who reads what of whom.
TEST(PeerSumsTest, CostWhatTheBusiestDeviceReads) {
  constexpr int64_t kElements = 1200;
  constexpr double kRate = 1e8;  // So slow that all else is little beside it.
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    const auto members = static_cast<int>(random.Between(2, 6));
    std::vector<int> group;
    std::vector<int> contributions;
    std::vector<int64_t> shares(static_cast<size_t>(members), kElements / members * 4);
    for (int i = 0; i < members; ++i) {
      group.push_back(i);
      contributions.push_back(static_cast<int>(random.Between(1, 4)));
    }
    double whole = 0;
    double scattered = 0;
    for (int reader = 0; reader < members; ++reader) {
      double addends = 0;
      double others = 0;
      for (int64_t element = 0; element < kElements; ++element) {
        const auto adder = static_cast<int>(element * members / kElements);
        others += adder == reader ? 0 : 4;
        for (int owner = 0; owner < members; ++owner) {
          addends += adder == reader && owner != reader
                         ? 4 * contributions[static_cast<size_t>(owner)]
                         : 0;
        }
      }
      whole = std::max(whole, addends + others);
      scattered = std::max(scattered, addends);
    }
    const comm::LinkTable links = Peers(members, kRate);
    const double meetings = 4 * kLatency;
    EXPECT_NEAR(TreeSumSeconds(links, group, contributions, 4 * kElements),
                meetings + whole / kRate, 0.02 * whole / kRate);
    EXPECT_NEAR(TreeScatterSeconds(links, group, contributions, shares),
                meetings + scattered / kRate, 0.02 * scattered / kRate);
  }
}

TEST(PeerSumsTest, LargeOnesMeetForEachPiece) {
  const comm::LinkTable links = Peers(2, 1e12);
  const std::vector<int> group = {0, 1};
  const std::vector<int> contributions = {3, 1};
  const int64_t bytes = program::kMostSumBytes / 2;
  const double one = TreeSumSeconds(links, group, contributions, bytes / 3);
  const double three = TreeSumSeconds(links, group, contributions, bytes);
  EXPECT_NEAR(one, 4 * kLatency + static_cast<double>(bytes) / 3 * 2 / 1e12, 1e-9);
  EXPECT_NEAR(three, 12 * kLatency + static_cast<double>(bytes) * 2 / 1e12, 1e-9);
}

TEST(PeerSumsTest, WhereOneDeviceCannotTheyGoThroughTheHost) {
  const std::vector<int> group = {0, 1, 2};
  const std::vector<int> contributions = {2, 1, 1};
  const std::vector<int64_t> shares = {4'000'000, 4'000'000, 0};
  comm::LinkTable links = Peers(4, 1e11);
  links.At(3, 0).peer_bytes_per_second = 0;  // That worker is no member.
  const double host = comm::ReduceTreeSeconds(links, group, contributions, 8'000'000);
  EXPECT_LT(TreeSumSeconds(links, group, contributions, 8'000'000), host);
  const std::vector<int> many = {program::kMostSumAddends - 1, 1, 1};
  EXPECT_EQ(TreeSumSeconds(links, group, many, 8'000'000),
            comm::ReduceTreeSeconds(links, group, many, 8'000'000));
  links.At(2, 1).peer_bytes_per_second = 0;
  EXPECT_EQ(TreeSumSeconds(links, group, contributions, 8'000'000), host);
  EXPECT_EQ(TreeScatterSeconds(links, group, contributions, shares),
            comm::ReduceScatterTreeSeconds(links, group, contributions, shares));
}

// Four equal cards whose host is slow: replicas are worth it only if their sums do not go through it.
TEST(PeerSumsTest, PlansHaveReplicasWhereSumsAreCheap) {
  const graph::Graph graph = LlamaGraph({.layers = 4, .vocabulary = 8192});
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf({1, 1, 1, 1}, /*bytes_per_second=*/2e7),
                        .microbatches = 8};
  const auto through_host = Search(request);
  ASSERT_TRUE(through_host.ok()) << through_host.status().ToString();
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      request.cluster.links.At(from, to).peer_bytes_per_second = 1e11;
    }
  }
  const auto on_devices = Search(request);
  ASSERT_TRUE(on_devices.ok()) << on_devices.status().ToString();
  EXPECT_LT(through_host->plan.pipelines.size(), 4U);
  EXPECT_EQ(on_devices->plan.pipelines.size(), 4U);
  EXPECT_LT(on_devices->simulation.step_seconds, through_host->simulation.step_seconds);

  const auto problem = MakeProblem(request);
  ASSERT_TRUE(problem.ok());
  EXPECT_NEAR(EstimateStepSeconds((*problem)->estimate, on_devices->plan) /
                  on_devices->simulation.step_seconds,
              1, 0.05);
}

}  // namespace
}  // namespace heddle::planner
