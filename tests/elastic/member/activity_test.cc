// From stage to stage: what each command and each end does in which of them.
#include "elastic/member/activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/member/taken.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ActivityTest : public testing::Test {
 protected:
  bool Start(int64_t generation) {
    wire::Start start;
    start.set_generation(generation);
    start.set_applied_step(5);
    start.set_save(true);
    return activity_.Start(start, taken_.out());
  }
  void Moved(int64_t generation, Status status = Status::Ok()) {
    StateMoved moved;
    moved.generation = generation;
    moved.status = std::move(status);
    moved.peer = moved.status.ok() ? "" : "b";
    moved.bytes["memory"] = 64;
    activity_.EndMove(moved, held_, reports_, taken_.out());
  }
  void Train(int64_t generation, int rank = 0) {
    Start(generation);
    Moved(generation);
    held_.Adopt(taken_.out());
    activity_.Train(rank, taken_.out());
    taken_.Words();
  }
  void Ended(RunEnded::How how, Status status = Status::Ok(), int64_t generation = 1) {
    RunEnded ended;
    ended.generation = generation;
    ended.how = how;
    ended.applied_step = 8;
    ended.status = std::move(status);
    ended.peer = "b";
    activity_.EndRun(ended, held_, reports_, taken_.out());
  }
  void Halt(int64_t fence) {
    wire::Halt halt;
    halt.set_generation(fence);
    halt.set_known_step(6);
    activity_.Halt(halt, held_, reports_, taken_.out());
  }
  void Stop(int64_t generation) {
    wire::Stop stop;
    stop.set_generation(generation);
    activity_.Stop(stop, taken_.out());
  }
  void SeeLost(int64_t generation) {
    activity_.AccusePeer({.generation = generation, .peer = "c", .reason = "reset"}, taken_.out());
  }
  std::vector<std::string> SaidAgain() {
    activity_.Resend(taken_.out());
    return taken_.Words();
  }

  Taken taken_;
  Reports reports_{100};
  HeldState held_;
  Activity activity_;
};

TEST_F(ActivityTest, MovesThenIsReadyThenTrains) {
  EXPECT_EQ(activity_.standing(), wire::STANDING_IDLE);
  EXPECT_TRUE(Start(1));
  EXPECT_EQ(activity_.standing(), wire::STANDING_MOVING);
  EXPECT_EQ(activity_.generation(), 1);
  EXPECT_FALSE(activity_.AwaitsGo(1));
  Moved(1);
  EXPECT_EQ(activity_.standing(), wire::STANDING_READY);
  EXPECT_THAT(taken_.Words(), ElementsAre("ready"));
  EXPECT_EQ(taken_.Message().ready().moved_bytes().at("memory"), 64);
  EXPECT_FALSE(activity_.AwaitsGo(2));
  ASSERT_TRUE(activity_.AwaitsGo(1));
  activity_.Train(1, taken_.out());
  EXPECT_TRUE(activity_.IsTraining());
  EXPECT_FALSE(activity_.Leads());
  taken_.Words();
  const auto run = taken_.Find<RunSteps>();
  ASSERT_TRUE(run);
  EXPECT_EQ(run->applied_step, 5);
  EXPECT_TRUE(run->save);
  EXPECT_FALSE(run->validate);
}

TEST_F(ActivityTest, AStartThatCameTwiceIsAnsweredTwiceAndMovesOnce) {
  EXPECT_TRUE(Start(1));
  EXPECT_FALSE(Start(1));
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "it moves";
  Moved(1);
  taken_.Words();
  EXPECT_FALSE(Start(1));
  EXPECT_THAT(taken_.Words(), ElementsAre("ready"));
  activity_.Train(0, taken_.out());
  taken_.Words();
  EXPECT_FALSE(Start(2)) << "it trains";
  EXPECT_TRUE(activity_.Leads());
}

TEST_F(ActivityTest, WhatHasStoppedIsSavedAndNothingElse) {
  const auto save = [&](int64_t generation, int64_t step) {
    wire::Save message;
    message.set_generation(generation);
    message.set_step(step);
    activity_.Save(message, taken_.out());
    taken_.Words();
    return taken_.Find<SaveState>();
  };
  Train(1);
  EXPECT_FALSE(save(1, 8)) << "it trains";
  Ended(RunEnded::How::kStopped);
  EXPECT_FALSE(save(2, 8));
  EXPECT_FALSE(save(1, 7));
  const auto saved = save(1, 8);
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->generation, 1);
  EXPECT_EQ(saved->step, 8);
  Halt(3);
  EXPECT_FALSE(save(1, 8)) << "what it holds may be settled";
}

TEST_F(ActivityTest, AMoveOfAnotherGenerationChangesNothing) {
  Start(3);
  Moved(2);
  EXPECT_THAT(taken_.Words(), IsEmpty());
  EXPECT_EQ(activity_.standing(), wire::STANDING_MOVING);
}

TEST_F(ActivityTest, AMoveThatFailedSaysWhomItBlames) {
  Start(1);
  Moved(1, UnavailableError("lost b"));
  EXPECT_EQ(activity_.standing(), wire::STANDING_HALTED);
  EXPECT_THAT(taken_.Words(), ElementsAre("ready"));
  EXPECT_EQ(taken_.Message().ready().peer(), "b");
  EXPECT_THAT(taken_.Message().ready().error(), HasSubstr("lost b"));
  EXPECT_FALSE(taken_.Message().ready().source_unreadable());
  wire::Halted halted;
  held_.Describe(halted);
  EXPECT_EQ(halted.staged_generation(), 0);
}

TEST_F(ActivityTest, StateThatDoesNotFitItsHashIsRefusedWithItsHolder) {
  Start(1);
  StateMoved moved;
  moved.generation = 1;
  moved.status = DataLossError("it differs");
  wire::Ready::Refused& refused = moved.refused.emplace_back();
  refused.set_holder("c");
  refused.set_chunk("master of head");
  activity_.EndMove(moved, held_, reports_, taken_.out());
  EXPECT_EQ(activity_.standing(), wire::STANDING_HALTED);
  EXPECT_THAT(taken_.Words(), ElementsAre("ready"));
  const wire::Ready ready = taken_.Message().ready();
  EXPECT_THAT(ready.error(), HasSubstr("it differs"));
  ASSERT_EQ(ready.refused_size(), 1);
  EXPECT_EQ(ready.refused(0).holder(), "c");
  EXPECT_EQ(ready.refused(0).chunk(), "master of head");
  wire::Halted halted;
  held_.Describe(halted);
  EXPECT_EQ(halted.staged_generation(), 0);
}

TEST_F(ActivityTest, AFailureOfItsOwnEndsTheWorker) {
  Start(1);
  Moved(1, DataLossError("no source could be unreadable"));
  EXPECT_THAT(taken_.Words(), ElementsAre("leaving", "act"));
  Train(2);
  Ended(RunEnded::How::kFailed, ResourceExhaustedError("memory"), 2);
  EXPECT_THAT(taken_.Words(), ElementsAre("leaving", "act"));
}

TEST_F(ActivityTest, AStopIsHandedOnWhileItTrainsAndAnsweredAfterwards) {
  Train(1);
  Stop(2);
  EXPECT_THAT(taken_.Words(), IsEmpty());
  Stop(1);
  taken_.Words();
  EXPECT_EQ(taken_.Find<RequestStop>()->generation, 1);
  Ended(RunEnded::How::kStopped);
  EXPECT_EQ(activity_.standing(), wire::STANDING_STOPPED);
  EXPECT_THAT(taken_.Words(), ElementsAre("stopped"));
  EXPECT_EQ(taken_.Message().stopped().applied_step(), 8);
  EXPECT_EQ(held_.applied_step(), 8);
  Stop(1);
  EXPECT_THAT(taken_.Words(), ElementsAre("stopped"));
  EXPECT_THAT(SaidAgain(), ElementsAre("stopped", "ready"));
}

TEST_F(ActivityTest, AStopIsAnsweredByTheLastStepToo) {
  Train(1);
  Ended(RunEnded::How::kFinished);
  EXPECT_EQ(activity_.standing(), wire::STANDING_FINISHED);
  EXPECT_THAT(taken_.Words(), ElementsAre("finished"));
  Stop(1);
  EXPECT_THAT(taken_.Words(), ElementsAre("finished"));
  EXPECT_EQ(taken_.Message().finished().step(), 8);
  EXPECT_THAT(SaidAgain(), ElementsAre("ready", "finished"));
}

TEST_F(ActivityTest, AHaltIsAnsweredOnceNothingRuns) {
  for (const int64_t step : {6, 7}) {
    wire::StepRecord record;
    record.set_step(step);
    reports_.AddStep(record);
  }
  Train(1);
  Halt(2);
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  EXPECT_EQ(taken_.Find<AbortBelow>()->generation, 2);
  EXPECT_EQ(activity_.fence(), 2);
  Halt(2);
  EXPECT_THAT(taken_.Words(), IsEmpty());
  Ended(RunEnded::How::kFailed, AbortedError("fenced"));
  EXPECT_EQ(activity_.standing(), wire::STANDING_HALTED);
  EXPECT_THAT(taken_.Words(), ElementsAre("halted"));
  EXPECT_EQ(taken_.Message().halted().generation(), 2);
  EXPECT_EQ(taken_.Message().halted().applied_step(), 8);
  EXPECT_EQ(taken_.Message().halted().records_size(), 1) << "6 is known there";
  Halt(2);
  EXPECT_THAT(taken_.Words(), ElementsAre("halted"));
  Halt(1);
  EXPECT_THAT(taken_.Words(), IsEmpty());
  EXPECT_THAT(SaidAgain(), ElementsAre("halted"));
  EXPECT_FALSE(Start(1)) << "it is fenced";
  EXPECT_TRUE(Start(2));
}

TEST_F(ActivityTest, AHaltDuringAMoveTellsWhatWasMoved) {
  Start(1);
  Halt(2);
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  Moved(1);
  EXPECT_THAT(taken_.Words(), ElementsAre("halted"));
  EXPECT_EQ(taken_.Message().halted().staged_generation(), 1);
  EXPECT_EQ(activity_.standing(), wire::STANDING_IDLE) << "nothing is held";
  EXPECT_FALSE(activity_.AwaitsGo(1));
  EXPECT_THAT(SaidAgain(), ElementsAre("halted"));
}

// The coordinator that asked has been started again, and begins another generation.
TEST_F(ActivityTest, ALaterStartIsNotAnsweredWithAnOldHalt) {
  Start(1);
  Halt(2);
  EXPECT_TRUE(Start(3));
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  Moved(1);
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "the move that was given up";
  Moved(3);
  EXPECT_THAT(taken_.Words(), ElementsAre("ready"));
  EXPECT_TRUE(activity_.AwaitsGo(3));
}

TEST_F(ActivityTest, TheFirstLossIsSaidOnceUntilAHalt) {
  Train(3);
  SeeLost(2);
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "of another generation";
  SeeLost(3);
  EXPECT_THAT(taken_.Words(), ElementsAre("peer_lost"));
  EXPECT_EQ(taken_.Message().peer_lost().peer(), "c");
  SeeLost(3);
  Ended(RunEnded::How::kFailed, UnavailableError("lost b"), 3);
  EXPECT_THAT(taken_.Words(), IsEmpty());
  EXPECT_THAT(SaidAgain(), ElementsAre("peer_lost", "ready"));
  Halt(4);
  taken_.Words();
  SeeLost(3);
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "that generation is over";
  EXPECT_THAT(SaidAgain(), ElementsAre("halted"));
}

TEST_F(ActivityTest, ARunThatFailedSaysWhomItBlames) {
  Train(1);
  Ended(RunEnded::How::kFailed, UnavailableError("reset"), 2);
  EXPECT_TRUE(activity_.IsTraining()) << "another generation's end";
  Ended(RunEnded::How::kFailed, UnavailableError("reset"));
  EXPECT_EQ(activity_.standing(), wire::STANDING_HALTED);
  EXPECT_THAT(taken_.Words(), ElementsAre("peer_lost"));
  EXPECT_EQ(taken_.Message().peer_lost().peer(), "b");
  EXPECT_THAT(taken_.Message().peer_lost().reason(), HasSubstr("reset"));
}

}  // namespace
}  // namespace heddle::elastic
