// When a job begins, when it gives up waiting, and when it has gone back too often.
#include "elastic/control/transition/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using Verdict = Formation::Verdict;

TEST(FormationTest, AllAreWaitedForThenTheLeastNumberWillDo) {
  JobPolicy policy;
  policy.initial_workers = 4;
  policy.min_workers = 2;
  const Time begin{std::chrono::seconds(100)};
  const Time late = begin + policy.formation_timeout;
  Formation formation;
  formation.Begin(begin);
  EXPECT_EQ(formation.NextDeadline(policy), late);
  EXPECT_EQ(formation.Look(3, policy, begin), Verdict::kWait);
  EXPECT_EQ(formation.Look(4, policy, begin), Verdict::kForm);
  EXPECT_EQ(formation.Look(3, policy, late - Duration(1)), Verdict::kWait);
  EXPECT_EQ(formation.Look(1, policy, late), Verdict::kWait);
  EXPECT_EQ(formation.Look(2, policy, late), Verdict::kForm);
  EXPECT_EQ(formation.NextDeadline(policy), std::nullopt) << "it waits for ever";
  formation.Begin(late);
  EXPECT_EQ(formation.Look(2, policy, late), Verdict::kWait) << "anew";
}

TEST(FormationTest, TooFewAreWaitedForNoLongerThanAllowed) {
  JobPolicy policy;
  policy.initial_workers = policy.min_workers = 2;
  policy.paused_timeout = std::chrono::seconds(60);
  const Time begin{std::chrono::seconds(100)};
  const Time over = begin + policy.formation_timeout + policy.paused_timeout;
  Formation formation;
  formation.Begin(begin);
  EXPECT_EQ(formation.Look(1, policy, over - Duration(1)), Verdict::kWait);
  EXPECT_EQ(formation.NextDeadline(policy), over);
  EXPECT_EQ(formation.Look(1, policy, over), Verdict::kGiveUp);
  EXPECT_EQ(formation.Look(2, policy, over), Verdict::kForm);
}

TEST(FormationTest, NobodyFormsNothing) {
  JobPolicy policy;
  policy.initial_workers = policy.min_workers = 0;
  Formation formation;
  formation.Begin(Time());
  EXPECT_EQ(formation.Look(0, policy, Time()), Verdict::kWait);
}

TEST(RecoveriesTest, SoManyInARowWithoutAStepFailTheJob) {
  Recoveries recoveries;
  const Time now{std::chrono::seconds(100)};
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(recoveries.Begin(3, now)) << i;
  }
  const auto end = recoveries.Begin(3, now);
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->ok);
  EXPECT_FALSE(end->bad_input);
  EXPECT_EQ(end->reason, "3 recoveries in a row without a completed step");
}

TEST(RecoveriesTest, AStepBetweenThemStartsTheCountAnew) {
  Recoveries recoveries;
  EXPECT_FALSE(recoveries.Begin(1, Time()));
  recoveries.StepDone();
  EXPECT_FALSE(recoveries.Begin(1, Time()));
  EXPECT_TRUE(recoveries.Begin(1, Time()));
}

TEST(RecoveriesTest, OneThatIsInterruptedIsCountedFromItsFirstLoss) {
  Recoveries recoveries;
  const Time first{std::chrono::seconds(100)};
  recoveries.Begin(9, first);
  recoveries.Begin(9, first + std::chrono::seconds(5));
  EXPECT_EQ(recoveries.End(), first);
  EXPECT_EQ(recoveries.End(), std::nullopt);
}

}  // namespace
}  // namespace heddle::elastic
