// What the coordinator is told of a plan's programs, and that those that do not fit each other are
// refused before anybody runs them.
#include "elastic/planning/plan_programs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/lowering/lower.h"
#include "tests/engine_program/example_programs.h"

namespace heddle::elastic {
namespace {

using program::Code;
using program::Plan;
using testing::ChainGraph;
using ::testing::HasSubstr;
using testing::PipelineOfCuts;
using testing::PlanOf;
using testing::Programs;

/// `workers` pipelines of one stage, two microbatches each.
Plan Replicas(int workers) {
  std::vector<program::Pipeline> pipelines;
  for (int worker = 0; worker < workers; ++worker) {
    pipelines.push_back(PipelineOfCuts({0, 4}, worker, 2 * worker, 2));
  }
  return PlanOf(workers, std::move(pipelines));
}

class PlanProgramsTest : public ::testing::Test {
 protected:
  void Use(Plan plan) {
    plan_ = std::move(plan);
    Result<Programs> programs = program::LowerAll(graph_, plan_);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    programs_ = std::move(*programs);
  }
  Status Take() {
    outcome_ = {};
    return TakePrograms(graph_, plan_, programs_, outcome_);
  }

  const graph::Graph graph_ = ChainGraph(4, /*tied=*/true);
  Plan plan_;
  Programs programs_;
  PlanOutcome outcome_;
};

TEST_F(PlanProgramsTest, HashesAndParametersAreByRank) {
  Use(testing::ExamplePlan());
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(outcome_.program_hashes.size(), 4u);
  EXPECT_EQ(outcome_.program_hashes[1], program::ProgramHash(programs_[1], graph_));
  EXPECT_THAT(outcome_.parameters,
              ::testing::ElementsAre(std::vector<int32_t>{0, 1}, std::vector<int32_t>{0, 2},
                                     std::vector<int32_t>{0, 1, 2}, std::vector<int32_t>{}));
}

TEST_F(PlanProgramsTest, ProgramsThatDoNotFitEachOtherAreRefusedByName) {
  Use(testing::ExamplePlan());
  testing::At(programs_[0], Code::kSend).tag += 7;
  const Status status = Take();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("do not fit each other"));
  EXPECT_THAT(status.message(), HasSubstr("worker w1"));
}

TEST_F(PlanProgramsTest, EveryProgramOfSixtyFourIsFollowed) {
  Use(Replicas(64));
  EXPECT_TRUE(Take().ok());
  testing::At(programs_[63], Code::kFree).inputs[0] += 1;
  EXPECT_THAT(Take().message(), HasSubstr("worker w63"));
}

TEST_F(PlanProgramsTest, OfMoreOneOfThoseThatAreAlikeIsFollowed) {
  Use(Replicas(65));
  EXPECT_TRUE(Take().ok());
  testing::At(programs_[0], Code::kFree).inputs[0] += 1;
  EXPECT_THAT(Take().message(), HasSubstr("worker w0"));
  Use(Replicas(65));
  programs_[64].vote.losses.pop_back();
  EXPECT_THAT(Take().message(), HasSubstr("nobody reports the loss of microbatch 129"));
}

}  // namespace
}  // namespace heddle::elastic
