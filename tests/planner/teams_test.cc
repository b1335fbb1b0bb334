// Teams of workers: who is in one, what shares its members have, and what the search makes of them.
#include "planner/teams/teams.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/plan.h"
#include "planner/teams/explain_groups.h"
#include "planner/teams/team_profile.h"
#include "planner/teams/team_search.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr graph::Heads kHeads{.query = 16, .key_value = 4};

/// Workers 0 … n-1 on two hosts by turns, joined by memory within a host and slowly across.
comm::LinkTable TwoHosts(int workers) {
  comm::LinkTable links(workers);
  for (int a = 0; a < workers; ++a) {
    for (int b = 0; b < workers; ++b) {
      links.At(a, b) =
          a % 2 == b % 2
              ? comm::Link{.latency_seconds = 1e-6, .bytes_per_second = 2e10, .transport = "shm"}
              : comm::Link{.latency_seconds = 1e-4, .bytes_per_second = 1e8, .transport = "tcp"};
    }
  }
  return links;
}

TEST(TeamsTest, MembersAreOfOneHostAndOfLikeSpeeds) {
  EXPECT_THAT(
      MakeTeams(kHeads, TwoHosts(9), {1, 4, 2, 3, 4, 2, 3, 1, 1}, 2, {}),
      ElementsAre(Team{.ranks = {4, 6}, .units = {9, 7}}, Team{.ranks = {2, 0}, .units = {11, 5}},
                  Team{.ranks = {1, 3}, .units = {9, 7}}, Team{.ranks = {5, 7}, .units = {11, 5}}));
}

TEST(TeamsTest, SharesAreWholeGroupsOfHeadsWhereThatCostsLittle) {
  const auto units = [](const std::vector<double>& speeds) {
    const int size = static_cast<int>(speeds.size());
    const auto teams = MakeTeams(kHeads, TwoHosts(2 * size),
                                 [&] {
                                   std::vector<double> all;
                                   for (const double speed : speeds) {
                                     all.insert(all.end(), {speed, 1e-3});
                                   }
                                   return all;
                                 }(),
                                 size, {});
    return teams.at(0).units;
  };
  EXPECT_THAT(units({1, 1}), ElementsAre(1, 1));
  EXPECT_THAT(units({1.02, 1}), ElementsAre(1, 1));
  EXPECT_THAT(units({3, 1}), ElementsAre(3, 1));
  EXPECT_THAT(units({2, 1}), ElementsAre(11, 5));
  EXPECT_THAT(units({4, 3, 1}), ElementsAre(4, 3, 1));
  // More members than key/value heads.
  EXPECT_THAT(units({1, 1, 1, 1, 1, 1, 1, 1}), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(TeamsTest, SharesAreEqualWithinWhatIsMeasuredOfSpeeds) {
  constexpr graph::Heads kMany{.query = 64, .key_value = 64};
  const auto units = [&](double first) {
    return MakeTeams(kMany, TwoHosts(4), {first, 1, 1, 1}, 2, {}).at(0).units;
  };
  EXPECT_THAT(units(1.08), ElementsAre(1, 1));
  EXPECT_THAT(units(1.2), ElementsAre(35, 29));
}

TEST(TeamsTest, TeamsStayTogetherWhileTheyAreThere) {
  const comm::LinkTable links = TwoHosts(8);
  const Team slow{.ranks = {2, 6}, .units = {1, 1}};
  // By speed 0 and 2 would be a team. A share stays although a member became a little faster.
  EXPECT_THAT(
      MakeTeams(kHeads, links, {4, 1, 3.04, 1, 1, 1, 3, 1}, 2, {slow}),
      ElementsAre(slow, Team{.ranks = {0, 4}, .units = {13, 3}},
                  Team{.ranks = {1, 3}, .units = {1, 1}}, Team{.ranks = {5, 7}, .units = {1, 1}}));
  // Twice as fast is worth another share.
  EXPECT_EQ(MakeTeams(kHeads, links, {1, 1, 2, 1, 1, 1, 1, 1}, 2, {slow})[0].units,
            (std::vector<int>{11, 5}));
}

TEST(TeamsTest, WithoutALargeIslandTeamsCrossHosts) {
  EXPECT_THAT(MakeTeams(kHeads, TwoHosts(4), {1, 1, 1, 1}, 3, {}),
              ElementsAre(Team{.ranks = {0, 1, 2}, .units = {6, 5, 5}}));
  EXPECT_THAT(MakeTeams(kHeads, TwoHosts(2), {1, 1}, 3, {}), IsEmpty());
}

TEST(TeamsTest, OfSeveralSizesTheFastestIsChosenThatFits) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf({1, 1, 1, 1}, 1e12, 1e-9),
                        .workers = {},
                        .microbatches = 1,
                        .determinism = program::Determinism::kRelaxed};
  const auto size_of = [](const SearchOutcome& outcome) {
    return outcome.plan.pipelines.front().stages.front().group.size();
  };
  // Of one microbatch a pipeline computes nothing side by side.
  const auto fast = SearchSizes(request, {1, 2, 4, 8});
  ASSERT_TRUE(fast.ok()) << fast.status().ToString();
  EXPECT_EQ(size_of(*fast), 4U);
  EXPECT_GE(fast->alternatives.size(), 2U);
  for (const int size : {1, 2, 4}) {
    const auto alone = SearchTeams(request, size);
    ASSERT_TRUE(alone.ok()) << alone.status().ToString();
    EXPECT_LE(fast->plan.predicted_step_seconds, alone->plan.predicted_step_seconds) << size;
  }
  // Over slow links each exchange costs more than it divides.
  request.cluster = ClusterOf({1, 1, 1, 1}, 1e6, 1e-2);
  request.microbatches = 8;
  const auto slow = SearchSizes(request, {1, 2, 4, 8});
  ASSERT_TRUE(slow.ok()) << slow.status().ToString();
  EXPECT_EQ(size_of(*slow), 1U);
  // What is in force stays while nothing is clearly better.
  request.previous = SearchTeams(request, 2)->plan;
  request.tie = 0.999;
  EXPECT_EQ(size_of(*SearchSizes(request, {1, 2, 4, 8})), 2U);
  // No plan at all: the reason is that of single workers.
  request.previous.reset();
  for (program::WorkerProfile& worker : request.cluster.workers) {
    worker.memory_bytes = 1000;
  }
  EXPECT_EQ(SearchSizes(request, {1, 2, 4}).status().message(), Search(request).status().message());
}

TEST(TeamsTest, TheInsideOfAGroupIsExplained) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf({1, 1, 1, 1}, 1e9, 1e-5),
                        .workers = {},
                        .microbatches = 8,
                        .determinism = program::Determinism::kRelaxed};
  const auto whole = SearchTeams(request, 2);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  const std::string text = *ExplainGroups(request, whole->plan);
  EXPECT_THAT(text, HasSubstr(", shares 1 : 1\n    forward: w"));
  EXPECT_THAT(text, HasSubstr(" sums of "));
  EXPECT_THAT(text, Not(HasSubstr("scatter")));
  request.divides_sequence = true;
  const auto divided = SearchTeams(request, 2);
  ASSERT_TRUE(divided.ok()) << divided.status().ToString();
  EXPECT_THAT(*ExplainGroups(request, divided->plan), HasSubstr(" scatters of "));
  const auto single = Search(request);
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  EXPECT_EQ(*ExplainGroups(request, single->plan), "");
}

double WholeSeconds(const graph::Graph& graph, const program::WorkerProfile& profile) {
  return AloneSeconds(graph, profile, 1);
}

TEST(TeamsTest, ATeamTakesAsLongAsItsMostLoadedMemberAndItsExchanges) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  const Team even{.ranks = {0, 1}, .units = {1, 1}};
  const auto layout = graph::TensorParallel(graph, even.units);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  const ClusterProfile fast = ClusterOf({1, 1}, 1e15, 1e-12);
  const double alone = WholeSeconds(graph, fast.workers[0]);
  const program::WorkerProfile team = TeamProfile(graph, fast, even, *layout);
  EXPECT_EQ(team.worker, "w0+w1");
  // Norms and residuals are not divided.
  EXPECT_GT(WholeSeconds(graph, team), 0.5 * alone);
  EXPECT_LT(WholeSeconds(graph, team), 0.62 * alone);
  // A member of half the speed doubles the part that both compute.
  EXPECT_NEAR(
      WholeSeconds(graph, TeamProfile(graph, ClusterOf({1, 0.5}, 1e15, 1e-12), even, *layout)),
      2 * WholeSeconds(graph, team), 0.02 * alone);
  // Eight sums for two layers, two for the loss, one for the embedding: each takes its latency.
  const double slow =
      WholeSeconds(graph, TeamProfile(graph, ClusterOf({1, 1}, 1e15, 1), even, *layout));
  EXPECT_GE(slow, 10);
  EXPECT_LE(slow, 30);
}

TEST(TeamsTest, MemoryIsThatOfTheWholeWhenTheFirstMemberIsFull) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  const Team uneven{.ranks = {0, 1}, .units = {3, 1}};
  const auto layout = graph::TensorParallel(graph, uneven.units);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  ClusterProfile cluster = ClusterOf({1, 1});
  EXPECT_EQ(TeamProfile(graph, cluster, uneven, *layout).memory_bytes, 0);
  cluster.workers[0].memory_bytes = 3000;
  EXPECT_NEAR(static_cast<double>(TeamProfile(graph, cluster, uneven, *layout).memory_bytes), 4000,
              40);
  cluster.workers[1].memory_bytes = 500;
  EXPECT_NEAR(static_cast<double>(TeamProfile(graph, cluster, uneven, *layout).memory_bytes), 2000,
              40);
}

TEST(TeamsTest, WhatCannotBeATeamIsRefused) {
  const graph::Graph graph = LlamaGraph({});
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf({1, 1, 1}),
                        .microbatches = 4,
                        .determinism = program::Determinism::kRelaxed};
  EXPECT_THAT(SearchTeams(request, 4).status().message(),
              HasSubstr("a stage is 4 workers, and there are 3"));
  EXPECT_THAT(SearchTeams(request, 64).status().message(),
              HasSubstr("64 workers cannot share a layer of"));
  request.determinism = program::Determinism::kExact;
  EXPECT_THAT(SearchTeams(request, 2).status().message(), HasSubstr("the job is exact"));
  EXPECT_TRUE(SearchTeams(request, 1).ok());
}

// A plan file may have groups, and then a member is lost: the job asks for single workers.
TEST(TeamsTest, ASearchForSingleWorkersDropsTheGroupsOfThePlanInForce) {
  const graph::Graph graph = LlamaGraph({});
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf({1, 1, 1, 1}),
                        .microbatches = 4,
                        .determinism = program::Determinism::kRelaxed};
  const auto grouped = SearchTeams(request, 2);
  ASSERT_TRUE(grouped.ok()) << grouped.status().ToString();
  ASSERT_FALSE(grouped->plan.layouts.empty());
  request.previous = grouped->plan;
  request.cluster.workers.erase(request.cluster.workers.begin());
  request.cluster.links = comm::LinkTable(3);
  const auto single = SearchTeams(request, 1);
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  EXPECT_THAT(single->plan.layouts, IsEmpty());
  for (const program::Pipeline& pipeline : single->plan.pipelines) {
    for (const program::Stage& stage : pipeline.stages) {
      EXPECT_EQ(stage.group.size(), 1U);
    }
  }
}

}  // namespace
}  // namespace heddle::planner
