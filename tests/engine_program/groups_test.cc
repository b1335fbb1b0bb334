// Plans with stages of several workers: what is refused, and by whom.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/lowering/lower.h"
#include "engine/program/stages.h"
#include "engine/program/verify/verify.h"
#include "tests/engine_program/graphs.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"

namespace heddle::program {
namespace {

using graph::Placement;
using testing::ChainGraph;
using ::testing::IsEmpty;
using testing::PipelineOfCuts;
using testing::PlanOf;

/// Workers 3 and 2, in this order, run the second pipeline together.
Plan GroupPlan() {
  Plan plan = PlanOf(4, {PipelineOfCuts({0, 2, 5}, 0, 0, 3), PipelineOfCuts({0, 5}, 2, 3, 2)});
  plan.determinism = Determinism::kRelaxed;
  plan.pipelines[1].stages[0].group = {3, 2};
  plan.pipelines[1].stages[0].layout = 0;
  plan.layouts = {{.cuts = {{.units = {3, 1}}, {.units = {2, 2}}},
                   .tensors = {{"linear1.weight", {.placement = Placement::Shard(0)}},
                               {"linear2.weight", {.placement = Placement::Shard(1), .cut = 1}}}}};
  return plan;
}

struct Refusal {
  std::function<void(Plan&)> change;
  std::string message;
};

TEST(GroupsTest, GroupsThatDoNotFitThePlanAreRefused) {
  const auto group_of = [](Group group) {
    return [ranks = std::move(group)](Plan& p) { p.pipelines[1].stages[0].group = ranks; };
  };
  const auto layout = [](int index) {
    return [index](Plan& p) { p.pipelines[1].stages[0].layout = index; };
  };
  const std::string stage = "plan: pipeline 1 stage 0: ";
  const std::vector<Refusal> refusals = {
      {group_of({}), stage + "it has no worker"},
      {group_of({3, 3}), stage + "worker w3 is in its group twice"},
      {group_of({3, 0}), stage + "worker w0 holds two stages"},
      {group_of({3, 4}), stage + "worker 4 is not in 0..3"},
      {group_of({-1, 3}), stage + "worker -1 is not in 0..3"},
      {group_of({3}), stage + "one worker needs no layout"},
      {layout(-1), stage + "a group of 2 workers has layout -1 among 1"},
      {layout(1), stage + "a group of 2 workers has layout 1 among 1"},
      {[](Plan& p) {
         p.layouts[0].cuts[0].units = {2, 1, 1};
       },
       stage + "a group of 2 workers has layout 0, which is for 3"},
      {[](Plan& p) { p.layouts[0].cuts.clear(); },
       stage + "a group of 2 workers has layout 0, which is for 1"},
      {[](Plan& p) { p.determinism = Determinism::kExact; },
       stage + "sums over a group of 2 workers are relaxed, the plan is exact"},
      {[](Plan& p) { p.layouts.push_back(p.layouts[0]); }, "plan: no stage has layout 1"},
      {[](Plan& p) { p.pipelines[0].stages[0].layout = 0; },
       "plan: pipeline 0 stage 0: one worker needs no layout"},
  };
  EXPECT_EQ(ValidatePlan(GroupPlan(), 5).message(), "");
  for (const Refusal& refusal : refusals) {
    Plan plan = GroupPlan();
    refusal.change(plan);
    const Status status = ValidatePlan(plan, 5);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << refusal.message;
    EXPECT_EQ(status.message(), refusal.message);
    EXPECT_EQ(ValidatePlan(plan, ChainGraph(5)).message(), refusal.message);
  }
}

TEST(GroupsTest, LayoutsThatDoNotFitTheGraphAreRefused) {
  const std::vector<Refusal> refusals = {
      {[](Plan& p) {
         p.layouts[0].cuts[1].units = {2, 1};
       },
       "plan: layout 0: cut 1 sums to 3 units, cut 0 to 4"},
      {[](Plan& p) { p.layouts[0].cuts[1].units = {4}; },
       "plan: layout 0: cut 1 has 1 shares, cut 0 has 2"},
      {[](Plan& p) {
         p.layouts[0].cuts = {{.units = {0, 0}}, {.units = {0, 0}}};
       },
       "plan: layout 0: cut 0: expected 1 to 1048576 units in all, got 0"},
      {[](Plan& p) { p.layouts[0].tensors["linear1.weight"].placement.unit = 3; },
       "plan: layout 0: 'linear1.weight': dimension 0 of [4, 4] is not in whole units of 3"},
      {[](Plan& p) { p.layouts[0].tensors["linear1.weight"].cut = 2; },
       "plan: layout 0: 'linear1.weight': there is no cut 2 among 2"},
      {[](Plan& p) { p.layouts[0].tensors["nobody"] = {}; },
       "plan: layout 0: the graph has no tensor 'nobody'"},
  };
  const graph::Graph graph = ChainGraph(5);
  EXPECT_EQ(ValidatePlan(GroupPlan(), graph).message(), "");
  for (const Refusal& refusal : refusals) {
    Plan plan = GroupPlan();
    refusal.change(plan);
    EXPECT_EQ(ValidatePlan(plan, 5).message(), "");
    const Status status = ValidatePlan(plan, graph);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << refusal.message;
    EXPECT_EQ(status.message(), refusal.message);
  }
}

TEST(GroupsTest, RandomGroupsFitTheirGraphs) {
  int groups = 0;
  for (const uint64_t seed : testing::TestSeeds(50)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = testing::RandomGraph(seed, DType::kF32);
    const Plan plan = testing::RandomGroupPlan(seed, graph);
    EXPECT_EQ(ValidatePlan(plan, graph).message(), "");
    groups += plan.layouts.empty() ? 0 : 1;
  }
  EXPECT_GT(groups, 0);
}

TEST(GroupsTest, EveryMemberHasItsPlace) {
  const Plan plan = GroupPlan();
  EXPECT_THAT(plan.IdleWorkers(), IsEmpty());
  for (const int rank : {2, 3}) {
    const Position found = PositionOf(plan, rank);
    EXPECT_EQ(std::pair(found.pipeline, found.stage), std::pair(1, 0)) << rank;
  }
  EXPECT_EQ(Describe(plan, ChainGraph(5)),
            "generation 1: 4 workers, 2 pipelines, 5 microbatches, relaxed\n"
            "pipeline 0: 3 microbatches from 0: w0 [embedding .. linear1] -> w1 [linear2 .. head]\n"
            "pipeline 1: 2 microbatches from 3: w3 + w2 [embedding .. head, layout 0]\n");
}

TEST(GroupsDeathTest, AGroupIsNotOneWorker) {
  const Plan plan = GroupPlan();
  EXPECT_EQ(plan.pipelines[0].stages[1].worker(), 1);
  EXPECT_DEATH(plan.pipelines[1].stages[0].worker(), "2 workers run the stage");
}

}  // namespace
}  // namespace heddle::program
