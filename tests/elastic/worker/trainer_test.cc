// A worker's trainer by itself: what it makes of the commands that its member gives it.
#include <limits>
#include <utility>

#include <gmock/gmock.h>

#include "tests/elastic/worker/trainer_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Those that heard the vote left the update out and counted the step: no gradients are needed.
TEST_F(TrainerTest, AStepThatTheVoteRefusedIsSettledWithoutItsUpdate) {
  Begin(1, 0);
  trainer_->Settle({.step = 1, .norm = std::numeric_limits<double>::quiet_NaN(), .skip = true});
  Begin(2, 1);
  const RunEnded ended = trainer_->Run({.generation = 2, .applied_step = 1});
  EXPECT_EQ(ended.how, RunEnded::How::kFinished) << ended.status.ToString();
  EXPECT_THAT(Steps(), ElementsAre(2, 3));
}

TEST_F(TrainerTest, AStepThatIsNotTheNextOneIsNotSettled) {
  Begin(1, 0);
  for (const bool skip : {true, false}) {
    trainer_->Settle({.step = 2, .norm = 1, .skip = skip});
    const StateMoved moved = trainer_->Move(MoveInto(2, 2));
    EXPECT_THAT(moved.status.ToString(), HasSubstr("step 2 is to be")) << skip;
  }
}

// A Stop can come after a step that is saved anyway, or after one that is not.
TEST_F(TrainerTest, TheStateAtRestIsSavedOnce) {
  Begin(1, 0);
  trainer_->RequestStop(1);
  const RunEnded ended = trainer_->Run({.generation = 1});
  ASSERT_EQ(ended.how, RunEnded::How::kStopped);
  ASSERT_EQ(ended.applied_step, 1);
  trainer_->Save({.generation = 1, .step = 2});
  trainer_->Save({.generation = 2, .step = 1});
  trainer_->Save({.generation = 1, .step = 1});
  trainer_->Save({.generation = 1, .step = 1});
  const auto saves = Saves(3);
  ASSERT_EQ(saves.size(), 3U);
  EXPECT_THAT(saves[0].error(), HasSubstr("not held here"));
  EXPECT_THAT(saves[1].error(), HasSubstr("not held here"));
  EXPECT_EQ(saves[2].error(), "");
  EXPECT_EQ(saves[2].step(), 1);
  EXPECT_EQ(saves[2].generation(), 1);
  EXPECT_FALSE(saves[2].part().empty());
}

TEST_F(TrainerTest, ASaveThatBeganWhileItRanIsNotBegunAgain) {
  Begin(1, 0);
  trainer_->RequestStop(1);
  trainer_->Run({.generation = 1, .save = true});  // Of the state that it begins with.
  EXPECT_EQ(Saves(1).at(0).step(), 0);
  Begin(2, 1);
  trainer_->RequestStop(2);
  trainer_->Run({.generation = 2, .applied_step = 1, .save = true});
  trainer_->Save({.generation = 2, .step = 2});
  trainer_->Save({.generation = 2, .step = 2});
  const auto saves = Saves(3);
  ASSERT_EQ(saves.size(), 3U);
  EXPECT_EQ(saves[1].step(), 1);
  EXPECT_EQ(saves[2].step(), 2);
}

// No other worker takes part in it, whose connections could break.
TEST_F(TrainerTest, AloneItRunsNoStepOfAGenerationThatIsOver) {
  Begin(1, 0);
  trainer_->Fence(1);
  trainer_->RequestStop(1);
  ASSERT_EQ(trainer_->Run({.generation = 1}).how, RunEnded::How::kStopped);
  trainer_->Fence(2);
  const RunEnded ended = trainer_->Run({.generation = 1, .applied_step = 1});
  EXPECT_EQ(ended.how, RunEnded::How::kFailed);
  EXPECT_EQ(ended.status.code(), StatusCode::kAborted) << ended.status.ToString();
  EXPECT_EQ(ended.applied_step, 1);
  EXPECT_FALSE(ended.voted);
  EXPECT_THAT(Steps(), ElementsAre(1));
}

// What its heartbeats tell.
TEST_F(TrainerTest, WhatItDoesIsCounted) {
  int64_t before = trainer_->progress();
  EXPECT_GT(before, 0) << "the profile";
  const auto more = [&] {
    return std::exchange(before, trainer_->progress()) < trainer_->progress();
  };
  EXPECT_TRUE(trainer_->Lower(1, plan_json_).ok());
  EXPECT_TRUE(more()) << "lowering";
  Begin(1, 0);
  EXPECT_TRUE(more()) << "a move";
  trainer_->Run({.generation = 1});
  EXPECT_TRUE(more()) << "steps";
  EXPECT_FALSE(more());
  EXPECT_FALSE(trainer_->waits());
}

}  // namespace
}  // namespace heddle::elastic
