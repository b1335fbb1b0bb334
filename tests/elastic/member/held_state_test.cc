// Which state is held, which is staged beside it, and what a Start makes of both.
#include "elastic/member/held_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/member/taken.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

wire::StepRecord Record(int64_t step, double norm) {
  wire::StepRecord record;
  record.set_step(step);
  record.set_gradient_norm(norm);
  return record;
}

class HeldStateTest : public testing::Test {
 protected:
  // Holds generation 1 after `step`.
  void Hold(int64_t step) {
    held_.Stage(1, step);
    held_.Adopt(taken_.out());
    taken_.Words();
  }
  // A run that ended after `step`, with the next one's gradients complete.
  void EndRun(int64_t step, std::optional<wire::StepRecord> record) {
    RunEnded ended;
    ended.applied_step = step;
    ended.voted = true;
    ended.voted_record = std::move(record);
    held_.EndRun(ended);
  }
  static wire::Start Start(int64_t applied_step, int64_t held, const std::string& worker) {
    wire::Start start;
    start.set_applied_step(applied_step);
    start.mutable_held()->set_generation(held);
    start.mutable_held()->add_workers(worker);
    return start;
  }
  bool Settle(const wire::Start& start) { return held_.Settle(start, "a", reports_, taken_.out()); }
  wire::Halted Halted() const {
    wire::Halted halted;
    held_.Describe(halted);
    return halted;
  }

  Taken taken_;
  Reports reports_{100};
  HeldState held_;
};

TEST_F(HeldStateTest, TellsTheNormOfTheLastStepThatItKnows) {
  Hold(4);
  held_.Apply(Record(5, 0.5));
  EXPECT_EQ(Halted().held_generation(), 1);
  EXPECT_EQ(Halted().applied_step(), 5);
  EXPECT_EQ(Halted().norm_step(), 5);
  EXPECT_EQ(Halted().norm(), 0.5);
  EXPECT_FALSE(Halted().voted());
  EndRun(5, std::nullopt);
  EXPECT_TRUE(Halted().voted());
  EXPECT_EQ(Halted().norm_step(), 5);
  EndRun(5, Record(6, 0.75));
  EXPECT_EQ(Halted().applied_step(), 5);
  EXPECT_EQ(Halted().norm_step(), 6);
  EXPECT_EQ(Halted().norm(), 0.75);
  ASSERT_EQ(Halted().records_size(), 1);
  EXPECT_EQ(Halted().records(0).step(), 6);
}

TEST_F(HeldStateTest, SettlesTheStepThatItLacksAndRecordsIt) {
  Hold(5);
  EndRun(5, Record(6, 0.75));
  wire::Start start = Start(6, 1, "a");
  start.mutable_settle()->set_step(6);
  start.mutable_settle()->set_norm(0.75);
  EXPECT_TRUE(Settle(start));
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  EXPECT_EQ(taken_.Find<SettleStep>()->step, 6);
  EXPECT_EQ(taken_.Find<SettleStep>()->norm, 0.75);
  EXPECT_EQ(held_.applied_step(), 6);
  EXPECT_EQ(reports_.StepsAfter(0).size(), 1);
  EXPECT_TRUE(Settle(start));
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "it is applied";
  EXPECT_FALSE(Halted().voted());
}

TEST_F(HeldStateTest, TellsThatTheVoteRefusedTheStepThatItKnows) {
  wire::StepRecord refused = Record(5, 0.5);
  refused.set_not_finite(true);
  Hold(4);
  held_.Apply(refused);
  EXPECT_TRUE(Halted().not_finite());
  EndRun(5, Record(6, 0.75));
  EXPECT_FALSE(Halted().not_finite()) << "step 6 it is now";
  refused.set_step(6);
  EndRun(5, refused);
  EXPECT_EQ(Halted().norm_step(), 6);
  EXPECT_TRUE(Halted().not_finite());
  held_.Apply(Record(6, 0.75));
  EndRun(6, std::nullopt);
  EXPECT_FALSE(Halted().not_finite());
}

TEST_F(HeldStateTest, SettlesAStepThatTheVoteRefusedWithoutItsUpdate) {
  Hold(5);
  EndRun(5, std::nullopt);
  wire::Start start = Start(6, 1, "a");
  start.mutable_settle()->set_step(6);
  start.mutable_settle()->set_norm(0.75);
  start.mutable_settle()->set_skip(true);
  EXPECT_TRUE(Settle(start));
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  EXPECT_TRUE(taken_.Find<SettleStep>()->skip);
  EXPECT_EQ(held_.applied_step(), 6);
  EXPECT_TRUE(Halted().not_finite()) << "as those say that heard the vote";
}

TEST_F(HeldStateTest, SettlesNothingWhereItsStateDoesNotCount) {
  Hold(5);
  EndRun(5, std::nullopt);
  for (wire::Start start : {Start(6, 1, "b"), Start(6, 2, "a"), wire::Start()}) {
    start.mutable_settle()->set_step(6);
    EXPECT_FALSE(Settle(start)) << start.ShortDebugString();
    EXPECT_THAT(taken_.Words(), IsEmpty());
  }
  wire::Start later = Start(7, 1, "a");
  later.mutable_settle()->set_step(7);
  EXPECT_TRUE(Settle(later));
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "two steps are missing here, not one";
}

TEST_F(HeldStateTest, RecordsAfterTheStepThatItStartsFromAreVoid) {
  Hold(5);
  reports_.AddStep(Record(5, 1));
  reports_.AddStep(Record(6, 1));
  Settle(Start(5, 1, "a"));
  EXPECT_EQ(reports_.StepsAfter(0).size(), 1);
}

TEST_F(HeldStateTest, WhatIsStagedIsAdoptedWhenItCountsAndDroppedOtherwise) {
  Hold(5);
  held_.Stage(3, 7);
  wire::Hello hello;
  held_.Describe(hello);
  EXPECT_EQ(hello.generation(), 1);
  EXPECT_EQ(hello.staged_generation(), 3);
  EXPECT_EQ(Halted().staged_generation(), 3);
  EXPECT_EQ(Halted().staged_step(), 7);
  HeldState other = held_;

  EXPECT_TRUE(Settle(Start(7, 3, "a")));
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  EXPECT_EQ(taken_.Find<AdoptState>()->generation, 3);
  EXPECT_EQ(held_.generation(), 3);
  EXPECT_EQ(held_.applied_step(), 7);
  EXPECT_EQ(Halted().staged_generation(), 0);

  held_ = other;
  EXPECT_TRUE(Settle(Start(5, 1, "a")));
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  EXPECT_EQ(taken_.Find<DiscardState>()->generation, 3);
  EXPECT_EQ(held_.generation(), 1);
  EXPECT_EQ(Halted().staged_generation(), 0);
}

TEST_F(HeldStateTest, SnapshotsOfLaterStepsAreOfAnotherHistoryOnceStateIsAdopted) {
  std::vector<wire::Halted::Replicas> snapshots(2);
  snapshots[0].set_step(4);
  snapshots[1].set_step(5);
  held_.SetReplicas(snapshots);
  held_.Stage(3, 4);
  EXPECT_EQ(Halted().replicas_size(), 2);
  held_.Adopt(taken_.out());
  ASSERT_EQ(Halted().replicas_size(), 1);
  EXPECT_EQ(Halted().replicas(0).step(), 4);
}

TEST_F(HeldStateTest, WhoOnlyGaveItsStateHoldsNone) {
  Hold(5);
  held_.Drop();
  wire::Heartbeat heartbeat;
  heartbeat.set_generation(9);
  held_.Describe(heartbeat);
  EXPECT_EQ(heartbeat.generation(), 0);
  EXPECT_EQ(heartbeat.applied_step(), 0);
}

}  // namespace
}  // namespace heddle::elastic
