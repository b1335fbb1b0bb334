// Who was asked to leave stays, when that is taken back in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::UnorderedElementsAre;

class StayingTest : public CoordinatorTest {
 protected:
  StayingTest() { Form(); }

  void Leaving(const std::string& name, int64_t notice) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_leaving()->set_reason("SIGTERM");
      message.mutable_leaving()->set_notice(notice);
    });
  }
  // Of the plan that is asked for.
  std::vector<std::string> Candidates() const {
    std::vector<std::string> names;
    for (const Candidate& candidate : request_->candidates) {
      names.push_back(candidate.name);
    }
    return names;
  }
  // Of the change that b leaves with.
  void PrepareWithoutB() {
    AnswerPlan();
    AnswerPrepared(3);
    From("b", [](wire::FromWorker& message) { message.mutable_prepared()->set_generation(3); });
  }
  void StopBoth() {
    for (const char* name : {"a", "b"}) {
      From(name, [](wire::FromWorker& message) {
        message.mutable_stopped()->set_generation(1);
        message.mutable_stopped()->set_applied_step(7);
      });
    }
  }
};

TEST_F(StayingTest, ADrainIsTakenBackBeforeThereIsAPlan) {
  Tell(DrainRequested{"b"});
  Wait(0.3, {"a", "b"});
  EXPECT_EQ(Candidates(), std::vector<std::string>{"a"});
  EXPECT_TRUE(coordinator_.StatusAt(now_).workers(1).may_stay());
  Tell(DrainCancelled{"b"});
  EXPECT_EQ(Count("drain_cancelled"), 1);
  EXPECT_FALSE(coordinator_.StatusAt(now_).workers(1).may_stay());
  EXPECT_EQ(stored_.workers.at("b").leaves, "") << "it is durable";
  Wait(5, {"a", "b"});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  EXPECT_EQ(Count("worker_left"), 0);
  EXPECT_EQ(Last("b", wire::ToWorker::kStop), nullptr);
  EXPECT_EQ(Last("b", wire::ToWorker::kStay), nullptr) << "nobody told it anything";
}

TEST_F(StayingTest, ADrainIsTakenBackWhileItIsPrepared) {
  Tell(DrainRequested{"host-b"});
  Wait(0.3, {"a", "b"});
  AnswerPlan();
  ASSERT_NE(Last("b", wire::ToWorker::kPrepare), nullptr);
  Tell(DrainCancelled{"host-b"});
  AnswerPrepared(3);
  From("b", [](wire::FromWorker& message) { message.mutable_prepared()->set_generation(3); });
  Wait(5, {"a", "b"});
  EXPECT_EQ(Last("b", wire::ToWorker::kStop), nullptr);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  EXPECT_EQ(stored_.held->number, 1);
}

// It has given its state to the others, and gets it again.
TEST_F(StayingTest, WhoHasStoppedJoinsTheNextPlan) {
  Tell(DrainRequested{"b"});
  Wait(0.3, {"a", "b"});
  PrepareWithoutB();
  ASSERT_NE(Last("b", wire::ToWorker::kStop), nullptr);
  Tell(DrainCancelled{"b"});
  StopBoth();
  AnswerReady({"a", "b"}, 3);
  EXPECT_EQ(stored_.held->number, 3);
  Wait(0.3, {"a", "b"});
  EXPECT_EQ(Count("worker_left"), 0);
  EXPECT_EQ(Last("b", wire::ToWorker::kRelease), nullptr);
  ASSERT_TRUE(request_.has_value());
  EXPECT_THAT(Candidates(), UnorderedElementsAre("a", "b"));
}

TEST_F(StayingTest, WhoHasLeftDoesNotComeBackByIt) {
  Tell(DrainRequested{"b"});
  Wait(0.3, {"a", "b"});
  PrepareWithoutB();
  StopBoth();
  AnswerReady({"a", "b"}, 3);
  Wait(0.3, {"a", "b"});
  ASSERT_EQ(Count("worker_left"), 1);
  Tell(DrainCancelled{"b"});
  EXPECT_EQ(Count("drain_cancelled"), 0);
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 1);
}

TEST_F(StayingTest, ANoticeIsWithdrawnAndTheNextOneCounts) {
  Leaving("b", 1);
  Tell(DrainCancelled{"b"});
  ASSERT_NE(Last("b", wire::ToWorker::kStay), nullptr);
  EXPECT_EQ(Last("b", wire::ToWorker::kStay)->stay().notice(), 1);
  EXPECT_EQ(stored_.workers.at("b").withdrawn, 1);
  sent_.clear();
  Leaving("b", 1);  // Said again before it heard.
  EXPECT_FALSE(coordinator_.StatusAt(now_).workers(1).may_stay());
  EXPECT_NE(Last("b", wire::ToWorker::kStay), nullptr);
  Leaving("b", 2);
  EXPECT_TRUE(coordinator_.StatusAt(now_).workers(1).may_stay());
}

TEST_F(StayingTest, ARestartedCoordinatorKnowsWhoStays) {
  Leaving("b", 1);
  Tell(DrainCancelled{"b"});
  coordinator_ = Coordinator(stored_, job_, now_);
  for (const char* name : {"a", "b"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_standing(wire::STANDING_TRAINING);
      hello.set_standing_generation(1);
    });
  }
  sent_.clear();
  Leaving("b", 1);
  EXPECT_NE(Last("b", wire::ToWorker::kStay), nullptr);
  Wait(5, {"a", "b"});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
}

// The run was told to end, and all of its workers with it.
TEST_F(StayingTest, NobodyStaysInARunThatIsToEnd) {
  Tell(SuspendRequested{"SIGTERM"});
  Tell(Ticked());
  EXPECT_FALSE(coordinator_.StatusAt(now_).workers(1).may_stay());
  Tell(DrainCancelled{"b"});
  EXPECT_EQ(Count("drain_cancelled"), 0);
  EXPECT_EQ(coordinator_.StatusAt(now_).workers(1).standing(), "draining");
}

}  // namespace
}  // namespace heddle::elastic
