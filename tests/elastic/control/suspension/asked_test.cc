// A job that is asked to end: a local run whose command was told to.
#include "tests/elastic/control/suspension/suspend_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST_F(CoordinatorSuspendTest, AskedForItEndsTheJob) {
  job_.policy.ends_suspended = true;
  Form();
  Tell(SuspendRequested{"SIGTERM"});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspending");
  Join("c");
  Suspend(4);
  ASSERT_TRUE(end_);
  EXPECT_TRUE(end_->suspended);
  EXPECT_FALSE(end_->ok);
  EXPECT_EQ(end_->reason, "suspended after step 4");
  EXPECT_EQ(Answer("c"), "requeue") << "it leaves, too";
  EXPECT_EQ(Count("job_failed"), 0);
  EXPECT_FALSE(stored_.finished);
  EXPECT_EQ(stored_.failed, "");
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspended");
}

TEST_F(CoordinatorSuspendTest, AskedForBeforeAnythingWasTrainedItEndsAtOnce) {
  job_.policy.ends_suspended = true;
  Tell(Submitted{job_});
  Join("a");
  Tell(SuspendRequested{"SIGTERM"});
  ASSERT_TRUE(end_);
  EXPECT_TRUE(end_->suspended);
  EXPECT_EQ(Answer("a"), "requeue");
}

TEST_F(CoordinatorSuspendTest, AskedForWithNobodyLeftItEnds) {
  job_.policy.ends_suspended = true;
  Form();
  Tell(ProcessExited{"a", 0, "killed by SIGKILL"});
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  Tell(SuspendRequested{"SIGTERM"});
  Wait(0.3, {});
  ASSERT_TRUE(end_);
  EXPECT_TRUE(end_->suspended);
}

// The one that restarted knows the steps, and that nobody holds what they made.
TEST_F(CoordinatorSuspendTest, AskedForAfterTheStateWasLostItSaysSo) {
  job_.policy.ends_suspended = true;
  job_.policy.initial_workers = 1;
  Tell(Submitted{job_});
  Join("a");
  AnswerPlan();
  AnswerPrepared(1);
  AnswerReady({"a"}, 1);
  for (const int64_t step : {1, 2, 3}) {
    Step(step);
  }
  Tell(ProcessExited{"a", 0, "killed by SIGKILL"});
  Wait(0.3, {});
  ASSERT_EQ(Count("paused"), 1);
  ASSERT_EQ(stored_.known_step, 3);
  coordinator_ = Coordinator(stored_, job_, now_);
  Tell(SuspendRequested{"SIGTERM"});
  Wait(0.3, {});
  ASSERT_NE(Suspended(), nullptr);
  EXPECT_EQ(Field("step"), 0);
  EXPECT_EQ(Field("steps_repeated"), 3);
  EXPECT_EQ(Reason(), "no worker is left that holds the newest state");
  ASSERT_TRUE(end_);
  EXPECT_THAT(end_->reason, HasSubstr("no worker is left"));
}

TEST_F(CoordinatorSuspendTest, AJobThatIsDoneIsNotSuspended) {
  job_.policy.total_steps = 1;
  job_.policy.final_checkpoint = false;
  job_.policy.checkpoint_every = 0;
  Form();
  LeaveAll();
  Step(1);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_finished()->set_generation(1);
      message.mutable_finished()->set_step(1);
    });
  }
  ASSERT_TRUE(end_);
  EXPECT_TRUE(end_->ok);
  EXPECT_EQ(Answer("a"), "release");
}

}  // namespace
}  // namespace heddle::elastic
