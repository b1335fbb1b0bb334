// Which changes are kept, and which are taken back and not tried again.
#include "elastic/control/outcome/outcomes.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

class OutcomesTest : public testing::Test {
 protected:
  OutcomesTest() {
    Begin(3, Promise{.change = change_,
                     .plan_json = "plan 1",
                     .before = StepLevel{.seconds = 1, .noise = 0, .steps = 15},
                     .step_seconds = 0.8,
                     .cost_seconds = 1});
    Steps(StepTimes::kExcluded, 9);
  }
  void Begin(int64_t generation, std::optional<Promise> promise, bool goes_back = false) {
    outcomes_.Begin(generation, std::move(promise), goes_back, out_);
  }
  void Steps(int count, double seconds) {
    for (int i = 0; i < count; ++i) {
      times_.Count(3, seconds);
    }
  }
  std::optional<FormerPlan> Judge() { return outcomes_.Judge(times_, now_, out_); }
  std::string Verdict() {
    std::string verdict;
    for (const CoordinatorAction& action : out_.Take()) {
      verdict = std::get<std::string>(*std::get<WriteLog>(action).event.Find("verdict"));
    }
    return verdict;
  }

  Change change_{
      .members = {"a", "b"},
      .candidates = {{"a", {.profile = 1, .slowdown = 1}}, {"b", {.profile = 2, .slowdown = 3}}}};
  Outcomes outcomes_;
  StepTimes times_;
  Outcomes::Circumstances now_{
      .steady = true, .possible = true, .steps_left = 1000, .gain_over_cost = 1.5};
  Outbox out_{[] { return DurableState(); }};
};

TEST_F(OutcomesTest, AChangeThatKeepsItsPromiseIsKept) {
  Steps(7, 0.8);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "") << "seven steps say nothing";
  Steps(1, 0.8);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "kept");
  Steps(20, 9);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "") << "once";
}

TEST_F(OutcomesTest, OneThatMadeStepsSlowerIsTakenBackOnce) {
  Steps(8, 1.1);
  const auto former = Judge();
  ASSERT_TRUE(former);
  EXPECT_EQ(former->plan_json, "plan 1");
  EXPECT_EQ(former->members, change_.members);
  EXPECT_EQ(former->step_seconds, 1);
  EXPECT_EQ(Verdict(), "") << "it is still in force";
  Begin(5, std::nullopt, true);
  EXPECT_EQ(Verdict(), "taken_back");
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "") << "once";
}

TEST_F(OutcomesTest, OneThatStaysAfterAllIsKept) {
  Steps(8, 1.1);
  ASSERT_TRUE(Judge());
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "kept");
  Begin(5, std::nullopt, true);
  EXPECT_EQ(Verdict(), "") << "once";
}

TEST_F(OutcomesTest, NothingIsSaidOfOneThatALossEnds) {
  Steps(8, 1.1);
  ASSERT_TRUE(Judge());
  Begin(5, std::nullopt);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "");
}

TEST_F(OutcomesTest, OneWithNothingToCompareIsKept) {
  Begin(3, Promise{.change = change_,
                   .plan_json = "plan 1",
                   .before = std::nullopt,
                   .step_seconds = 0.8,
                   .cost_seconds = 1});
  Steps(8, 9);
  EXPECT_FALSE(Judge());
  const auto logged = out_.Take();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_EQ(FormatLogEvent(std::get<WriteLog>(logged.front()).event, 1),
            R"({"time": 1.000000, "event": "plan_outcome", "generation": 3, )"
            R"("promised_seconds": 0.8, "realised_seconds": 9, "verdict": "kept"})");
}

TEST_F(OutcomesTest, HowManyStepsAreComparedFollowsFromTheirNoise) {
  for (int i = 0; i < 24; ++i) {
    Steps(1, 1.5);
    Steps(1, 1.3);
    EXPECT_FALSE(Judge()) << i;
  }
  Steps(2, 1.4);
  EXPECT_TRUE(Judge()) << "so many at most";
}

TEST_F(OutcomesTest, SlowerWithinTheNoiseIsKept) {
  Steps(8, 1.019);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "kept");
}

TEST_F(OutcomesTest, WhileAWorkersSpeedChangesThePlanIsNotToBlame) {
  now_.steady = false;
  Steps(StepTimes::kKept - 1, 2);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "");
  const Outcomes asked = outcomes_;
  now_.steady = true;
  EXPECT_TRUE(Judge());
  outcomes_ = asked;
  now_.steady = false;
  Steps(1, 2);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "kept") << "it is not waited for without end";
}

TEST_F(OutcomesTest, WhatCannotOrNeedNotBeTakenBackIsKept) {
  Steps(8, 2);
  const Outcomes asked = outcomes_;
  now_.possible = false;
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "kept");
  outcomes_ = asked;
  now_.possible = true;
  now_.steps_left = 1;
  EXPECT_FALSE(Judge());
  EXPECT_EQ(Verdict(), "kept") << "one second is saved, and one and a half are needed";
}

TEST_F(OutcomesTest, TheSameChangeIsKnownAgain) {
  EXPECT_FALSE(outcomes_.WasTakenBack(change_, 1.2));
  Steps(8, 2);
  ASSERT_TRUE(Judge());
  EXPECT_TRUE(outcomes_.WasTakenBack(change_, 1.2));
  Change other = change_;
  other.candidates["b"].slowdown = 2.6;
  EXPECT_TRUE(outcomes_.WasTakenBack(other, 1.2));
  other.candidates["b"].slowdown = 2.4;
  EXPECT_FALSE(outcomes_.WasTakenBack(other, 1.2)) << "it is another speed";
  other = change_;
  other.members = {"a"};
  EXPECT_FALSE(outcomes_.WasTakenBack(other, 1.2)) << "another plan trains";
  other = change_;
  other.candidates["b"].profile = 3;
  EXPECT_FALSE(outcomes_.WasTakenBack(other, 1.2)) << "another machine";
  other = change_;
  other.candidates["c"] = {};
  EXPECT_FALSE(outcomes_.WasTakenBack(other, 1.2));
}

}  // namespace
}  // namespace heddle::elastic
