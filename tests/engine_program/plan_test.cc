#include "engine/program/plan.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine_program/graphs.h"

namespace heddle::program {
namespace {

using testing::ChainGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PipelineOfCuts;
using testing::PlanOf;

Plan TwoPipelines() {
  return PlanOf(4, {PipelineOfCuts({0, 2, 5}, 0, 0, 3), PipelineOfCuts({0, 5}, 2, 3, 2)});
}

TEST(PlanTest, ValidPlanIsAccepted) {
  EXPECT_TRUE(ValidatePlan(TwoPipelines(), 5).ok());
  EXPECT_TRUE(ValidatePlan(SingleWorkerPlan("alone", 5, 7), 5).ok());
}

TEST(PlanTest, RangesNeedNotFollowThePipelinesOrder) {
  Plan plan = TwoPipelines();
  plan.pipelines[1].first_microbatch = 0;
  plan.pipelines[0].first_microbatch = 2;
  EXPECT_TRUE(ValidatePlan(plan, 5).ok());
}

TEST(PlanTest, CountsMicrobatchesAndIdleWorkers) {
  EXPECT_EQ(TwoPipelines().microbatches(), 5);
  EXPECT_THAT(TwoPipelines().IdleWorkers(), ElementsAre(3));
}

struct BadPlan {
  const char* name;
  const char* message;
  std::function<void(Plan&)> change;
};

class BadPlanTest : public ::testing::TestWithParam<BadPlan> {};

TEST_P(BadPlanTest, IsRefused) {
  Plan plan = TwoPipelines();
  GetParam().change(plan);
  const Status status = ValidatePlan(plan, 5);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    BadPlanTest,
    ::testing::Values(
        BadPlan{"NoWorkers", "no workers", [](Plan& p) { p.workers.clear(); }},
        BadPlan{"EmptyName", "empty name", [](Plan& p) { p.workers[1].clear(); }},
        BadPlan{"NameTwice", "'w0' appears twice", [](Plan& p) { p.workers[1] = "w0"; }},
        BadPlan{"NoPipelines", "no pipelines", [](Plan& p) { p.pipelines.clear(); }},
        BadPlan{"NoStages", "pipeline 1 ends at segment 0 of 5",
                [](Plan& p) { p.pipelines[1].stages.clear(); }},
        BadPlan{"UnknownWorker", "worker 4 is not in 0..3",
                [](Plan& p) { p.pipelines[0].stages[1].group = {4}; }},
        BadPlan{"NegativeWorker", "worker -1",
                [](Plan& p) { p.pipelines[0].stages[1].group = {-1}; }},
        BadPlan{"TwoStages", "worker w0 holds two stages",
                [](Plan& p) { p.pipelines[1].stages[0].group = {0}; }},
        BadPlan{"Gap", "[3, 5) do not continue at 2",
                [](Plan& p) { p.pipelines[0].stages[1].first_segment = 3; }},
        BadPlan{"EmptyStage", "[0, 0)", [](Plan& p) { p.pipelines[0].stages[0].last_segment = 0; }},
        BadPlan{"Short", "ends at segment 4 of 5",
                [](Plan& p) { p.pipelines[1].stages[0].last_segment = 4; }},
        BadPlan{"Long", "[0, 6)", [](Plan& p) { p.pipelines[1].stages[0].last_segment = 6; }},
        BadPlan{"NoMicrobatches", "pipeline 1: 0 microbatches",
                [](Plan& p) { p.pipelines[1].microbatches = 0; }},
        BadPlan{"MicrobatchGap", "have a gap",
                [](Plan& p) { p.pipelines[1].first_microbatch = 4; }},
        BadPlan{"MicrobatchOverlap", "overlap",
                [](Plan& p) { p.pipelines[1].first_microbatch = 2; }},
        BadPlan{"TooManyMicrobatches", "out of range",
                [](Plan& p) { p.pipelines[1].microbatches = 1 << 30; }},
        BadPlan{"AheadAtTheLastStage", "stage 1: 1 microbatches ahead, not in 0..0",
                [](Plan& p) { p.pipelines[0].stages[1].ahead = 1; }},
        BadPlan{"NegativeAhead", "stage 0: -1 microbatches ahead",
                [](Plan& p) { p.pipelines[0].stages[0].ahead = -1; }},
        BadPlan{"PeakBytes", "predicted_peak_bytes has 1 entries",
                [](Plan& p) { p.predicted_peak_bytes = {1}; }},
        BadPlan{"ProcessBytes", "predicted_process_bytes has 1 entries",
                [](Plan& p) { p.predicted_process_bytes = {1}; }},
        BadPlan{"TransportRows", "transports has 1 rows", [](Plan& p) { p.transports = {{}}; }},
        BadPlan{"TransportColumns", "transports[2] has 0 entries",
                [](Plan& p) {
                  p.transports.assign(4, std::vector<std::string>(4, "tcp"));
                  p.transports[2].clear();
                }}),
    [](const ::testing::TestParamInfo<BadPlan>& parameter) { return parameter.param.name; });

TEST(PlanTest, DescriptionNamesSegmentsSharesAndWorkers) {
  Plan plan = TwoPipelines();
  plan.pipelines[0].stages[0].recompute = true;
  plan.pipelines[0].stages[0].ahead = 1;
  EXPECT_EQ(Describe(plan, ChainGraph(5)),
            "generation 1: 4 workers, 2 pipelines, 5 microbatches, exact\n"
            "pipeline 0: 3 microbatches from 0: w0 [embedding .. linear1, recomputed, 1 ahead] -> "
            "w1 [linear2 .. head]\n"
            "pipeline 1: 2 microbatches from 3: w2 [embedding .. head]\n"
            "idle: w3\n");
}

TEST(PlanTest, AStageCannotWaitForForwardsThatComeAfterABackward) {
  Plan plan;
  plan.workers = {"a", "b", "c"};
  plan.pipelines = {{.stages = {{.group = {0}, .first_segment = 0, .last_segment = 1},
                                {.group = {1}, .first_segment = 1, .last_segment = 2, .ahead = 1},
                                {.group = {2}, .first_segment = 2, .last_segment = 3}},
                     .microbatches = 8}};
  EXPECT_TRUE(ValidatePlan(plan, 3).ok());
  plan.pipelines[0].stages[1].ahead = 2;
  EXPECT_THAT(ValidatePlan(plan, 3).message(), HasSubstr("stage 1: 2 microbatches ahead"));
  plan.pipelines[0].stages[0].ahead = 1;
  EXPECT_TRUE(ValidatePlan(plan, 3).ok());
  // The batch is smaller than either warm-up: both compute all forwards first.
  plan.pipelines[0].stages[0].ahead = 0;
  plan.pipelines[0].microbatches = 2;
  EXPECT_TRUE(ValidatePlan(plan, 3).ok());
}

TEST(PlanTest, HoldersOfATiedParameterAreBothEnds) {
  const graph::Graph graph = ChainGraph(5, /*tied=*/true);
  // Parameters: embedding.weight (read by both ends), linear1 … linear3.
  const Plan plan =
      PlanOf(5, {PipelineOfCuts({0, 1, 3, 5}, 1, 0, 1), PipelineOfCuts({0, 5}, 0, 1, 1)});
  EXPECT_THAT(ParameterHolders(graph, plan), ElementsAre(ElementsAre(0, 1, 3), ElementsAre(0, 2),
                                                         ElementsAre(0, 2), ElementsAre(0, 3)));
}

}  // namespace
}  // namespace heddle::program
