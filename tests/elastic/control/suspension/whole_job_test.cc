// All workers leave at once, at every stage that the job may be in.
#include "tests/elastic/control/suspension/suspend_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST_F(CoordinatorSuspendTest, WhatAllHoldIsSavedBeforeTheyMayGo) {
  Form();
  Leave("a");
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "changing") << "b can carry it";
  EXPECT_EQ(coordinator_.StatusAt(now_).workers(0).standing(), "draining");
  Leave("b");
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspending");
  ASSERT_NE(Last("a", wire::ToWorker::kStop), nullptr);
  Step(1);
  Stop(1);
  ASSERT_NE(Last("b", wire::ToWorker::kSave), nullptr);
  EXPECT_EQ(Last("b", wire::ToWorker::kSave)->save().step(), 1);
  EXPECT_EQ(Last("b", wire::ToWorker::kSave)->save().generation(), 1);
  Part("a", 1);
  Part("b", 1);
  EXPECT_EQ(Answer("a"), "none");
  Commit(1);
  EXPECT_EQ(Answer("a"), "requeue");
  EXPECT_EQ(Answer("b"), "requeue");
  ASSERT_NE(Suspended(), nullptr);
  EXPECT_EQ(Reason(), "");
  EXPECT_EQ(Field("step"), 1);
  EXPECT_EQ(Field("steps_repeated"), 0);
  EXPECT_EQ(Count("worker_left"), 2);
  EXPECT_EQ(Count("drain_refused"), 0);
  EXPECT_FALSE(stored_.held);
  EXPECT_FALSE(end_);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspended");
  EXPECT_THAT(coordinator_.StatusAt(now_).reason(), HasSubstr("after step 1"));
}

// A notice for all reaches one after the other, and those that train fast could let the first go.
TEST_F(CoordinatorSuspendTest, NobodyIsLetGoBeforeItIsKnownWhetherAllLeave) {
  Form();
  Join("c");
  PlanOutcome worse;
  worse.request_id = request_->id;
  worse.predicted_step_seconds = 9;
  worse.current_step_seconds = 1;
  Tell(Planned{worse});
  for (const char* name : {"c", "a"}) {
    Leave(name);
    Wait(0.1, {"a", "b", "c"});
    EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training") << name;
    EXPECT_EQ(Answer("c"), "none");
  }
  Leave("b");
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspending");
  Step(1);
  Stop(1);
  Part("a", 1);
  Part("b", 1);
  Commit(1);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(Answer(name), "requeue") << name;
  }
}

TEST_F(CoordinatorSuspendTest, ItGoesOnThereWithThoseThatCome) {
  Form();
  Suspend(3);
  Join("c");
  Join("d");
  AnswerPlan();
  AnswerPrepared(2);
  ASSERT_NE(Last("c", wire::ToWorker::kStart), nullptr);
  EXPECT_EQ(Last("c", wire::ToWorker::kStart)->start().checkpoint_step(), 3);
  AnswerReady(members_, 2);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 3);
}

TEST_F(CoordinatorSuspendTest, WhoComesMeanwhileStaysForTheNextGeneration) {
  Form();
  LeaveAll();
  Join("c");
  Step(1);
  Stop(1);
  Part("a", 1);
  Part("b", 1);
  Commit(1);
  EXPECT_EQ(Answer("a"), "requeue");
  EXPECT_EQ(Answer("c"), "none");
  Join("d");
  ASSERT_TRUE(request_);
  EXPECT_THAT(request_->candidates, SizeIs(2));
}

TEST_F(CoordinatorSuspendTest, ASaveThatFailsNamesTheStepThatIsGoneOnFrom) {
  job_.checkpoints = {0};
  Form();
  Step(1);
  Step(2);
  LeaveAll();
  Stop(2);
  Part("a", 2, "disk full");
  EXPECT_THAT(Reason(), HasSubstr("disk full"));
  EXPECT_EQ(Field("step"), 0);
  EXPECT_EQ(Field("steps_repeated"), 2);
  EXPECT_EQ(Answer("a"), "requeue");
  EXPECT_EQ(Answer("b"), "requeue");
}

TEST_F(CoordinatorSuspendTest, WhoDoesNotStopInTimeIsNotWaitedFor) {
  job_.policy.notice = std::chrono::seconds(5);
  Form();
  LeaveAll();
  Wait(4.8, {"a", "b"});
  EXPECT_EQ(Suspended(), nullptr);
  Wait(0.3, {"a", "b"});
  EXPECT_THAT(Reason(), HasSubstr("in time"));
  EXPECT_EQ(Answer("a"), "requeue");
}

// They are killed when it is over, whatever the job is doing.
TEST_F(CoordinatorSuspendTest, TheNoticeCountsFromTheMomentThatAllLeave) {
  job_.policy.notice = std::chrono::seconds(5);
  Tell(Submitted{job_});
  Join("a");
  Join("b");
  AnswerPlan();
  LeaveAll();
  Wait(4.8, {"a", "b"});
  EXPECT_EQ(Answer("a"), "none") << "the first generation is on its way";
  Wait(0.3, {"a", "b"});
  EXPECT_THAT(Reason(), HasSubstr("did not come to rest in time"));
  EXPECT_EQ(Answer("a"), "requeue");
  EXPECT_EQ(Answer("b"), "requeue");
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspended");
}

TEST_F(CoordinatorSuspendTest, ALossMeanwhileGivesNoMoreTime) {
  job_.policy.notice = std::chrono::seconds(5);
  Form();  // Each holds everything.
  LeaveAll();
  Wait(3, {"a", "b"});
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  Halted("a", 2, 1, 1, false);
  Wait(0.2, {"a"});
  AnswerPlan();
  AnswerPrepared(3);
  AnswerReady(members_, 3);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspending");
  Wait(2, {"a"});
  EXPECT_THAT(Reason(), HasSubstr("in time"));
  EXPECT_EQ(Answer("a"), "requeue");
}

TEST_F(CoordinatorSuspendTest, AChangeThatIsBeingPreparedIsDropped) {
  Form();
  Join("c");
  LeaveAll({"a", "b"});
  ASSERT_TRUE(request_);
  AnswerPlan();  // Of c alone.
  sent_.clear();
  Leave("c");
  ASSERT_NE(Last("a", wire::ToWorker::kStop), nullptr);
  Step(1);
  Stop(1);
  Part("a", 1);
  Part("b", 1);
  Commit(1);
  EXPECT_EQ(Reason(), "");
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(Answer(name), "requeue") << name;
  }
}

TEST_F(CoordinatorSuspendTest, AChangeForWhichTheyStopAnywayIsDroppedToo) {
  Form();
  Leave("a");
  Wait(0.2, {"a", "b"});
  AnswerPlan();  // Of b alone, to which a gives its state.
  AnswerPrepared(3);
  From("a", [](wire::FromWorker& message) { message.mutable_prepared()->set_generation(3); });
  ASSERT_NE(Last("b", wire::ToWorker::kStop), nullptr);
  Step(1);
  Stop(1, 1, {"a"});
  Leave("b");
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspending");
  Stop(1);  // Said again by a.
  EXPECT_NE(Last("a", wire::ToWorker::kSave), nullptr);
}

TEST_F(CoordinatorSuspendTest, AStandbyThatIsAskedFirstIsReleasedAndTheOthersAreSaved) {
  Form();
  Join("c");
  PlanOutcome worse;
  worse.request_id = request_->id;
  worse.predicted_step_seconds = 9;
  worse.current_step_seconds = 1;
  Tell(Planned{worse});
  Leave("c");
  Wait(0.2, {"a", "b", "c"});
  EXPECT_EQ(Answer("c"), "release") << "the job goes on without it";
  Suspend(1);
  EXPECT_EQ(Answer("a"), "requeue");
}

TEST_F(CoordinatorSuspendTest, OneThatIsLostMeanwhileIsARecoveryOfThoseThatLeave) {
  Form();  // Each holds everything.
  LeaveAll();
  Step(1);
  Stop(1);
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  ASSERT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
  Halted("a", 2, 1, 1, false);
  Wait(0.2, {"a"});
  ASSERT_TRUE(request_) << "a counts, although it leaves";
  EXPECT_EQ(Suspended(), nullptr);
  AnswerPlan();
  AnswerPrepared(3);
  sent_.clear();
  AnswerReady(members_, 3);
  ASSERT_NE(Last("a", wire::ToWorker::kGo), nullptr);
  ASSERT_NE(Last("a", wire::ToWorker::kStop), nullptr) << "at once";
  Step(2);
  Stop(2, 3, {"a"});
  Part("a", 2);
  Commit(2);
  EXPECT_EQ(Reason(), "");
  EXPECT_EQ(Field("step"), 2);
  EXPECT_EQ(Answer("a"), "requeue");
}

TEST_F(CoordinatorSuspendTest, WhoHoldsOnlyAPartIsReleasedToGoOnFromTheCheckpoint) {
  job_.checkpoints = {0};
  Form(/*split=*/true);
  Step(1);
  LeaveAll();
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  Halted("a", 2, 1, 1, false);
  Wait(0.2, {"a"});
  EXPECT_THAT(Reason(), HasSubstr("do not hold the whole state"));
  EXPECT_EQ(Field("step"), 0);
  EXPECT_EQ(Field("steps_repeated"), 1);
  EXPECT_EQ(Answer("a"), "requeue");
}

TEST_F(CoordinatorSuspendTest, TooFewThatLeaveAreReleased) {
  job_.policy.min_workers = 2;
  Form();
  LeaveAll();
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  Halted("a", 2, 1, 1, false);
  Wait(0.2, {"a"});
  EXPECT_THAT(Reason(), HasSubstr("1 of at least 2"));
  EXPECT_EQ(Answer("a"), "requeue");
}

TEST_F(CoordinatorSuspendTest, BeforeTheFirstGenerationTheyMayGoAtOnce) {
  job_.policy.initial_workers = 3;
  Tell(Submitted{job_});
  Join("a");
  Join("b");
  LeaveAll();
  EXPECT_EQ(Answer("a"), "requeue");
  EXPECT_EQ(Answer("b"), "requeue");
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 0);
}

TEST_F(CoordinatorSuspendTest, WhileTheFirstPlanIsLookedForTheyMayGoAtOnce) {
  Tell(Submitted{job_});
  Join("a");
  Join("b");
  ASSERT_TRUE(request_);
  LeaveAll();
  EXPECT_EQ(Answer("b"), "requeue");
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "forming");
}

TEST_F(CoordinatorSuspendTest, SignalledWhereTheRestCannotCarryTheJobItIsSuspended) {
  Form();
  Leave("a");
  Wait(0.2, {"a", "b"});
  ASSERT_TRUE(request_);
  PlanOutcome none;
  none.request_id = request_->id;
  none.status = ResourceExhaustedError("no memory");
  Tell(Planned{none});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspending");
  Step(1);
  Stop(1);
  Part("a", 1);
  Part("b", 1);
  Commit(1);
  EXPECT_EQ(Answer("a"), "requeue");
  EXPECT_EQ(Answer("b"), "none") << "it waits for others";
}

TEST_F(CoordinatorSuspendTest, ADrainWhereTheRestCannotCarryTheJobIsRefused) {
  Form();
  Tell(DrainRequested{"a"});
  Wait(0.2, {"a", "b"});
  PlanOutcome none;
  none.request_id = request_->id;
  none.status = ResourceExhaustedError("no memory");
  Tell(Planned{none});
  EXPECT_EQ(Count("drain_refused"), 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
}

TEST_F(CoordinatorSuspendTest, DrainedAllTheJobIsSuspendedToo) {
  Form();
  Tell(DrainRequested{"host-a"});
  Tell(DrainRequested{"b"});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "suspending");
}

TEST_F(CoordinatorSuspendTest, AReleaseThatGotLostIsSaidAgain) {
  Form();
  Suspend(1);
  sent_.clear();
  Hello("a");
  EXPECT_EQ(Answer("a"), "requeue");
  EXPECT_EQ(Last("a", wire::ToWorker::kRefused), nullptr);
}

// Its Stop came late, and the coordinator that sent it has been started again meanwhile.
TEST_F(CoordinatorSuspendTest, AStopThatNobodyAskedForIsARecovery) {
  Form();
  Stop(3, 2, {"a"});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training") << "of another generation";
  Stop(3, 1, {"a"});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "recovering");
  EXPECT_NE(Last("b", wire::ToWorker::kHalt), nullptr);
}

TEST_F(CoordinatorSuspendTest, AnEarlierSaveThatFailedDoesNotFailTheLastOne) {
  job_.policy.total_steps = 2;
  Form();
  Step(1);
  Part("a", 1, "disk full");
  Step(2);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_finished()->set_generation(1);
      message.mutable_finished()->set_step(2);
    });
  }
  EXPECT_FALSE(end_) << "its parts are still to come";
  Part("a", 2);
  Part("b", 2);
  Commit(2);
  ASSERT_TRUE(end_);
  EXPECT_TRUE(end_->ok);
}

// As `train` does it.

}  // namespace
}  // namespace heddle::elastic
