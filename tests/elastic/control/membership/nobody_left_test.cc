// A job ends when no worker is left that could come, and says why the first one ended.
#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

TEST_F(CoordinatorTest, AJobWhoseLaunchedWorkersHaveAllEndedEndsAtOnceWithTheFirstReason) {
  Tell(Submitted{job_});
  Tell(ProcessExited{"a", 7, "exit code 1: no port is free"});
  Tell(ProcessExited{"b", 8, "exit code 2"});
  EXPECT_FALSE(end_.has_value()) << "others may be launched";
  Tell(ProcessExited{"c", 9, "exit code 2", true});
  ASSERT_TRUE(end_.has_value());
  EXPECT_FALSE(end_->ok);
  EXPECT_EQ(end_->reason,
            "no worker is left; the first that ended: a: exit code 1: no port is free");
}

TEST_F(CoordinatorTest, AWorkerThatSomebodyElseStartedKeepsTheJobWaitingForOthers) {
  Tell(Submitted{job_});
  Join("d");
  Tell(ProcessExited{"a", 7, "exit code 1", true});
  EXPECT_FALSE(end_.has_value());
  Tell(ProcessExited{"d", 0, "killed"});
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->reason, HasSubstr("a: exit code 1"));
}

TEST_F(CoordinatorTest, TheReasonOfTheFirstLossCountsUntilAStepIsCompleted) {
  Form();
  Tell(ProcessExited{"b", 0, "out of memory"});
  Tell(ProcessExited{"a", 0, "killed", true});
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->reason, HasSubstr("b: out of memory"));
}

TEST_F(CoordinatorTest, ALossThatTheJobHasOvercomeIsNotWhyItEnds) {
  Form();
  Tell(ProcessExited{"c", 0, "exit code 2"});
  Step(1);
  Tell(ProcessExited{"b", 0, "out of memory"});
  Tell(ProcessExited{"a", 0, "killed", true});
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->reason, HasSubstr("b: out of memory"));
}

TEST_F(CoordinatorTest, WhereTooFewComeInTimeTheFirstThatEndedIsNamed) {
  job_.policy.paused_timeout = std::chrono::seconds(20);
  Tell(Submitted{job_});
  Tell(ProcessExited{"a", 7, "exit code 1"});
  Wait(51, {});
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->reason, "0 of at least 1 workers came; the first that ended: a: exit code 1");
}

}  // namespace
}  // namespace heddle::elastic
