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

using ::testing::ContainsRegex;
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

TEST(TeamsTest, SharesOfKeyValueHeadsAreTakenBeforeFinerOnes) {
  constexpr graph::Heads kFew{.query = 64, .key_value = 4};
  const auto units = [&](double first) {
    return MakeTeams(kFew, TwoHosts(4), {first, 1e-3, 1, 1e-3}, 2, {}).at(0).units;
  };
  EXPECT_THAT(units(2.8), ElementsAre(3, 1)) << "47 : 17 query heads are 1 % faster";
  EXPECT_THAT(units(2.2), ElementsAre(11, 5)) << "44 : 20, 9 % faster than 3 : 1";
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
  // A stream of 64 KiB is summed at the embedding and twice a layer, and its gradient at the head and
  // twice a layer; for the loss, each of 64 positions has a largest logit, a sum and a target.
  EXPECT_THAT(text, HasSubstr(", shares 1 : 1\n    forward: w"));
  EXPECT_THAT(text, ContainsRegex("forward: w0 [1-9][0-9.]* ms, w1 [1-9][0-9.]* ms; "
                                  "6 sums of 328192B in all, [^;]*; 1 max of 256B in all"));
  EXPECT_THAT(text, ContainsRegex("backward: w0 [1-9][0-9.]* ms, w1 [1-9][0-9.]* ms; "
                                  "5 sums of 320KiB in all, [^;]*\n"));
  EXPECT_THAT(text, Not(HasSubstr("scatter")));
  // Two pipelines of one stage are described once.
  program::Plan alike = whole->plan;
  alike.pipelines.resize(1);
  const int segments = static_cast<int>(graph.segments.size());
  program::Stage& stage = alike.pipelines[0].stages[0];
  stage.group = {0, 1};
  stage.first_segment = 0;
  stage.last_segment = segments;
  alike.pipelines[0].stages.resize(1);
  alike.pipelines[0].microbatches = 4;
  const std::string once = *ExplainGroups(request, alike);
  alike.pipelines.push_back(alike.pipelines[0]);
  alike.pipelines[1].first_microbatch = 4;
  alike.pipelines[1].stages[0].group = {2, 3};
  EXPECT_EQ(*ExplainGroups(request, alike), once);
  request.divides_sequence = true;
  const auto divided = SearchTeams(request, 2);
  ASSERT_TRUE(divided.ok()) << divided.status().ToString();
  EXPECT_THAT(*ExplainGroups(request, divided->plan), HasSubstr(" scatters of "));
  const auto single = Search(request);
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  EXPECT_EQ(*ExplainGroups(request, single->plan), "");
}

TEST(TeamsTest, OfManyUnlikeStagesEightAreExplained) {
  const graph::Graph graph = LlamaGraph({.layers = 10, .hidden = 256});
  SearchRequest request{.graph = &graph,
                        .cluster = ClusterOf(std::vector<double>(20, 1), 1e9, 1e-5),
                        .workers = {},
                        .microbatches = 8,
                        .determinism = program::Determinism::kRelaxed};
  const auto found = SearchTeams(request, 2);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  program::Plan plan = found->plan;
  plan.pipelines.resize(1);
  plan.pipelines[0].microbatches = 8;
  std::vector<program::Stage>& stages = plan.pipelines[0].stages;
  stages.assign(10, stages[0]);
  for (int s = 0; s < 10; ++s) {
    program::Stage& stage = stages[static_cast<size_t>(s)];
    stage.group = {2 * s, 2 * s + 1};
    stage.first_segment = s;
    stage.last_segment = s < 9 ? s + 1 : static_cast<int>(graph.segments.size());
  }
  const auto text = ExplainGroups(request, plan);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(std::ranges::count(*text, '\n'), 1 + 8 * 3) << *text;
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
  // Both hold and update half of the parameters, but the norms.
  for (const char* const what : {"fold", "update"}) {
    EXPECT_NEAR(team.ByteSeconds(what, 1000) / fast.workers[0].ByteSeconds(what, 1000), 0.5, 0.01);
  }
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

// The means of the members' speeds are 5/8, 1/4 and 1/8.
TEST(TeamsTest, TeamsMadeAlikeHaveTheSharesOfTheMeansOfTheirSpeeds) {
  std::vector<Team> teams = {{.ranks = {0, 1, 2}, .units = {12, 2, 2}},
                             {.ranks = {3, 4, 5}, .units = {8, 6, 2}}};
  MakeAlike(kHeads, {6, 1, 1, 2, 1.5, 0.5}, teams);
  EXPECT_THAT(teams, ElementsAre(Team{.ranks = {0, 1, 2}, .units = {5, 2, 1}},
                                 Team{.ranks = {3, 4, 5}, .units = {5, 2, 1}}));
}

SearchRequest RequestOf(const graph::Graph& graph, ClusterProfile cluster, int microbatches) {
  return {.graph = &graph,
          .cluster = std::move(cluster),
          .workers = {},
          .microbatches = microbatches,
          .determinism = program::Determinism::kRelaxed};
}

std::set<std::vector<int>> GroupsOf(const program::Plan& plan) {
  std::set<std::vector<int>> groups;
  for (const program::Pipeline& pipeline : plan.pipelines) {
    for (const program::Stage& stage : pipeline.stages) {
      groups.insert(stage.group);
    }
  }
  return groups;
}

TEST(TeamsTest, TheTeamsOfThePlanInForceStayTogether) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  SearchRequest request = RequestOf(graph, ClusterOf({4, 4, 2, 2}), 8);
  request.previous = SearchTeams(request, 2)->plan;
  const std::set<std::vector<int>> together = {{0, 1}, {2, 3}};
  EXPECT_EQ(GroupsOf(*request.previous), together);
  request.cluster = ClusterOf({4, 2, 4, 2});
  EXPECT_EQ(GroupsOf(SearchTeams(request, 2)->plan), together);
  request.previous.reset();
  EXPECT_EQ(GroupsOf(SearchTeams(request, 2)->plan), (std::set<std::vector<int>>{{0, 2}, {1, 3}}));
}

TEST(TeamsTest, OfEquallyGoodPlansTheOneInForceStays) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  for (const int size : {1, 2}) {
    SearchRequest request = RequestOf(graph, ClusterOf(std::vector<double>(2 * size, 1)), 9);
    request.previous = SearchTeams(request, size)->plan;
    std::vector<program::Pipeline>& pipelines = request.previous->pipelines;
    ASSERT_EQ(pipelines.size(), 2U);
    ASSERT_NE(pipelines[0].microbatches, pipelines[1].microbatches);
    std::swap(pipelines[0].microbatches, pipelines[1].microbatches);
    pipelines[1].first_microbatch = pipelines[0].microbatches;
    EXPECT_EQ(SearchTeams(request, size)->plan.pipelines, pipelines) << size;
  }
}

TEST(TeamsTest, TheBoundIsThatOfTheWorkersAlone) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  const SearchRequest request = RequestOf(graph, ClusterOf({1, 0.5}), 8);
  EXPECT_NEAR(SearchTeams(request, 2)->bound_seconds / Search(request)->bound_seconds, 1, 1e-9);
}

// Each of two members sends to its counterpart; the slower of the two ways counts, either way.
TEST(TeamsTest, TheSlowestLinkBetweenTwoTeamsCounts) {
  const graph::Graph graph = LlamaGraph({.layers = 2, .hidden = 256});
  SearchRequest request = RequestOf(graph, ClusterOf({1, 1, 1, 1}), 8);
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      request.cluster.links.At(a, b).transport = a / 2 == b / 2 ? "shm" : "tcp";
    }
  }
  request.previous = SearchTeams(request, 2)->plan;  // Both teams stay, whatever the links.
  ASSERT_EQ(GroupsOf(*request.previous), (std::set<std::vector<int>>{{0, 1}, {2, 3}}));
  for (const auto& [from, to] : {std::pair(1, 3), std::pair(3, 1)}) {
    for (const bool latency : {true, false}) {
      SearchRequest slow = request;
      comm::Link& link = slow.cluster.links.At(from, to);
      (latency ? link.latency_seconds : link.bytes_per_second) = latency ? 10 : 1e3;
      const auto found = SearchTeams(slow, 2);
      ASSERT_TRUE(found.ok()) << found.status().ToString();
      EXPECT_EQ(GroupsOf(found->plan).size(), 1U) << from << " to " << to << " " << latency;
    }
  }
}

// What a search takes for a team's memory is less exact than its members' programs.
TEST(TeamsTest, PlansFitInTheMemoryOfEachMember) {
  const graph::Graph graph = LlamaGraph({.layers = 4, .hidden = 128, .sequence = 256});
  SearchRequest request = RequestOf(graph, ClusterOf({1, 1, 1, 1}), 8);
  const auto free = SearchTeams(request, 2);
  ASSERT_TRUE(free.ok()) << free.status().ToString();
  const int64_t peak = *std::ranges::max_element(free->plan.predicted_peak_bytes);
  for (const size_t full : {size_t{0}, size_t{3}}) {
    for (int64_t percent = 99; percent >= 75; percent -= 8) {
      SearchRequest little = request;
      little.cluster.workers[full].memory_bytes = peak * percent / 100;
      const auto found = SearchTeams(little, 2);
      ASSERT_TRUE(found.ok()) << full << " " << percent << ": " << found.status().ToString();
      EXPECT_LE(found->plan.predicted_peak_bytes[full], peak * percent / 100);
    }
  }
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
