// Each step is logged once and in order, whatever comes twice or too early.
#include "elastic/control/steps/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StepsTest : public testing::Test {
 protected:
  StepsTest() {
    policy_.total_steps = 5;
    policy_.stop_timeout = std::chrono::seconds(10);
  }
  std::string Take(std::initializer_list<int64_t> steps, bool finite = true) {
    google::protobuf::RepeatedPtrField<wire::StepRecord> records;
    for (const int64_t step : steps) {
      wire::StepRecord& record = *records.Add();
      record.set_step(step);
      record.set_seconds(static_cast<double>(step));
      record.set_loss(1.0 / static_cast<double>(step));
      record.set_not_finite(!finite);
    }
    return steps_.Take(records, policy_, out_);
  }
  std::vector<int64_t> Logged() {
    std::vector<int64_t> logged;
    for (const CoordinatorAction& action : out_.Take()) {
      logged.push_back(std::get<int64_t>(*std::get<WriteLog>(action).event.Find("step")));
    }
    return logged;
  }
  bool Validate(int64_t step, double loss) {
    wire::Validation message;
    message.set_step(step);
    message.set_loss(loss);
    return steps_.TakeValidation(message, out_);
  }

  JobPolicy policy_;
  Time now_{std::chrono::seconds(100)};
  Steps steps_;
  Outbox out_{[] { return DurableState(); }};
};

TEST_F(StepsTest, RecordsAreLoggedOnceAndInOrder) {
  Take({3, 1, 1});
  EXPECT_THAT(Logged(), ElementsAre(1));
  Take({2, 1});
  EXPECT_THAT(Logged(), ElementsAre(2, 3));
  EXPECT_EQ(steps_.known(), 3);
}

TEST_F(StepsTest, ARollBackVoidsWhatCameAfter) {
  Take({1, 2, 3, 5});
  EXPECT_TRUE(Validate(2, 0.5));
  EXPECT_TRUE(Validate(3, 0.25));
  out_.Take();
  steps_.RollBackTo(2);
  EXPECT_EQ(steps_.ValidationOf(2), 0.5);
  EXPECT_EQ(steps_.ValidationOf(3), std::nullopt);
  EXPECT_TRUE(Validate(3, 0.125)) << "of another history";
  out_.Take();
  Take({3, 4});
  EXPECT_THAT(Logged(), ElementsAre(3, 4)) << "5 was of the history before";
}

TEST_F(StepsTest, GoingOnFromACheckpointSkipsWhatItHolds) {
  steps_.GoOnAfter(3);
  Take({1, 2, 3, 4});
  EXPECT_THAT(Logged(), ElementsAre(4));
  steps_.RollBackTo(7);
  EXPECT_EQ(steps_.known(), 4) << "a roll back goes back";
}

TEST_F(StepsTest, ANumberThatIsNotFiniteStopsTheJobUnlessItIsSkipped) {
  EXPECT_THAT(Take({1, 2}, false), HasSubstr("step 1 is not finite"));
  EXPECT_EQ(steps_.known(), 1);
  policy_.stop_on_non_finite = false;
  EXPECT_EQ(Take({2, 3}, false), "");
  EXPECT_EQ(steps_.known(), 3);
}

TEST_F(StepsTest, StepSecondsAreSmoothed) {
  Take({1});
  EXPECT_EQ(steps_.seconds(), 1);
  Take({2});
  EXPECT_NEAR(steps_.seconds(), 1.2, 1e-12);
}

TEST_F(StepsTest, AValidationLossCountsOnce) {
  EXPECT_TRUE(Validate(1, 0.5));
  EXPECT_FALSE(Validate(1, 0.75));
  EXPECT_EQ(steps_.ValidationOf(1), 0.5);
  EXPECT_EQ(steps_.validation_loss(), 0.5);
}

TEST_F(StepsTest, RecordsAreStoredASecondApart) {
  const Duration second = std::chrono::seconds(1);
  EXPECT_FALSE(steps_.StoreIsDue(now_)) << "nothing is known";
  Take({1});
  EXPECT_TRUE(steps_.StoreIsDue(now_)) << "nothing was stored yet";
  DurableState durable;
  steps_.Store(durable, now_);
  EXPECT_EQ(durable.known_step, 1);
  EXPECT_EQ(steps_.durable(), 1);
  Take({2});
  EXPECT_EQ(steps_.durable(), 1);
  EXPECT_FALSE(steps_.StoreIsDue(now_ + second - Duration(1)));
  EXPECT_TRUE(steps_.StoreIsDue(now_ + second));
  EXPECT_EQ(steps_.NextDeadline(policy_, true), now_ + second);
  EXPECT_EQ(steps_.NextDeadline(policy_, false), std::nullopt);
}

TEST_F(StepsTest, TheJobEndsWithItsLastRecordAndCheckpoint) {
  Take({1, 2, 3, 4});
  EXPECT_FALSE(steps_.Close(policy_, true, "", now_, out_)) << "a record is missing";
  Take({5});
  EXPECT_FALSE(steps_.Close(policy_, false, "", now_, out_)) << "the checkpoint is missing";
  const auto end = steps_.Close(policy_, true, "", now_, out_);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->ok);
}

TEST_F(StepsTest, TheLastCheckpointIsWaitedForNoLongerThanAllowed) {
  Take({1, 2, 3, 4, 5});
  EXPECT_FALSE(steps_.Close(policy_, false, "", now_, out_));
  EXPECT_EQ(steps_.NextDeadline(policy_, false), now_ + policy_.stop_timeout);
  now_ += policy_.stop_timeout - Duration(1);
  EXPECT_FALSE(steps_.Close(policy_, false, "", now_, out_));
  now_ += Duration(1);
  const auto late = steps_.Close(policy_, false, "", now_, out_);
  ASSERT_TRUE(late);
  EXPECT_FALSE(late->ok);
  EXPECT_THAT(late->reason, HasSubstr("not completed in time"));
}

TEST_F(StepsTest, ALastCheckpointThatFailsIsNotWaitedFor) {
  Take({1, 2, 3, 4, 5});
  const auto end = steps_.Close(policy_, false, "disk full", now_, out_);
  ASSERT_TRUE(end);
  EXPECT_THAT(end->reason, HasSubstr("the last checkpoint failed: disk full"));
}

TEST_F(StepsTest, WhoHasFinishedCountsForOneGeneration) {
  steps_.Finish("a");
  steps_.Finish("b");
  steps_.Forget("a");
  EXPECT_THAT(steps_.finished(), ElementsAre("b"));
  steps_.BeginGeneration();
  EXPECT_THAT(steps_.finished(), IsEmpty());
}

TEST_F(StepsTest, AsManyEarlyRecordsAsTheBoundAreTakenOnceTheGapIsFilled) {
  policy_.total_steps = 100000;
  for (int64_t step = 2; step <= 4096; ++step) {
    Take({step});
  }
  Take({1});
  EXPECT_EQ(steps_.known(), 4096);
}

// Beyond the gap there is room for 4,096; what fills the gap needs none.
TEST_F(StepsTest, TheRecordThatFillsAGapIsTakenHoweverManyFollowIt) {
  policy_.total_steps = 100000;
  for (int64_t step = 2; step <= 6000; ++step) {
    Take({step});
  }
  EXPECT_EQ(steps_.known(), 0);
  Take({1});
  EXPECT_EQ(steps_.known(), 4097);
  for (int64_t step = 4098; step <= 6000; ++step) {
    Take({step});
  }
  EXPECT_EQ(steps_.known(), 6000);
}

TEST_F(StepsTest, OfTooManyEarlyRecordsThoseNearestToTheGapAreKept) {
  policy_.total_steps = 100000;
  for (int64_t step = 6000; step >= 2; --step) {
    Take({step});
  }
  Take({1});
  EXPECT_EQ(steps_.known(), 4097);
}

TEST_F(StepsTest, EarlyRecordsOfStepsThatACheckpointHoldsAreDropped) {
  Take({2, 3});
  steps_.GoOnAfter(3);
  Take({4});
  EXPECT_THAT(Logged(), ElementsAre(4));
  EXPECT_EQ(steps_.known(), 4);
}

TEST_F(StepsTest, TheLastRecordAndTheNewestValidationAreShown) {
  Take({1, 2});
  ASSERT_NE(steps_.last_record(), nullptr);
  EXPECT_EQ(steps_.last_record()->step(), 2);
  Validate(1, 0.5);
  Validate(2, 0.25);
  EXPECT_EQ(steps_.validation_loss(), 0.25);
}

TEST_F(StepsTest, WhatWasNotHeardHasNoFigure) {
  EXPECT_EQ(steps_.last_record(), nullptr);
  EXPECT_EQ(steps_.validation_loss(), std::nullopt);
  Take({1, 2, 3});
  Validate(1, 0.5);
  Validate(3, 0.25);
  steps_.RollBackTo(2);
  EXPECT_EQ(steps_.last_record(), nullptr) << "that of step 3 is of a history that was given up";
  EXPECT_EQ(steps_.validation_loss(), 0.5);
}

TEST_F(StepsTest, AJobThatMadeNoStepHereEndsWithoutALoss) {
  steps_.GoOnAfter(5);
  ASSERT_TRUE(steps_.Close(policy_, true, "", now_, out_).has_value());
  std::vector<CoordinatorAction> actions = out_.Take();
  ASSERT_EQ(actions.size(), 1U);
  const LogEvent& event = std::get<WriteLog>(actions.front()).event;
  EXPECT_EQ(event.kind, "job_finished");
  EXPECT_EQ(std::get<int64_t>(*event.Find("step")), 5);
  EXPECT_EQ(event.Find("loss"), nullptr);
}

TEST_F(StepsTest, WhatWasStoredIsKnownAfterARestart) {
  DurableState durable;
  durable.known_step = 3;
  steps_.Restore(durable, now_);
  EXPECT_EQ(steps_.known(), 3);
  EXPECT_EQ(steps_.durable(), 3);
  EXPECT_EQ(steps_.NextDeadline(policy_, true), std::nullopt) << "nothing is new";
  Take({4});
  EXPECT_FALSE(steps_.StoreIsDue(now_));
  EXPECT_EQ(steps_.NextDeadline(policy_, true), now_ + std::chrono::seconds(1));
}

TEST_F(StepsTest, TheNextTickIsForTheRecordOrTheLastCheckpoint) {
  DurableState durable;
  steps_.Store(durable, now_);
  Take({1, 2, 3, 4, 5});
  policy_.stop_timeout = std::chrono::milliseconds(500);
  EXPECT_FALSE(steps_.Close(policy_, false, "", now_, out_));
  EXPECT_EQ(steps_.NextDeadline(policy_, true), now_ + policy_.stop_timeout);
  policy_.stop_timeout = std::chrono::milliseconds(1500);
  EXPECT_EQ(steps_.NextDeadline(policy_, true), now_ + std::chrono::seconds(1));
  steps_.BeginGeneration();
  EXPECT_EQ(steps_.NextDeadline(policy_, false), std::nullopt) << "nobody has finished";
}

}  // namespace
}  // namespace heddle::elastic
