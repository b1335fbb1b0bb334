// Whoever hangs in a step, between workers that say for whom they wait.
#include "elastic/protocol/awaited.h"
#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class HangTest : public CoordinatorTest {
 protected:
  struct Says {
    bool waits = false;
    std::string other = {};
    bool acts = false;
    wire::Standing standing = wire::STANDING_TRAINING;
  };
  HangTest() {
    job_.policy.initial_workers = 4;
    Tell(Submitted{job_});
    for (const char* name : {"a", "b", "c", "d"}) {
      Join(name);
    }
    AnswerPlan();
    AnswerPrepared(1);
    AnswerReady(members_, 1);
    sent_.clear();
  }
  // All are heard meanwhile, until somebody is given up.
  double WaitUntilALoss(const std::map<std::string, Says>& words, double seconds, int64_t of = 1) {
    for (double waited = 0; waited < seconds; waited += 0.2) {
      if (Count("worker_lost") > 0 || Last("a", wire::ToWorker::kHalt) != nullptr) {
        return waited;
      }
      now_ += std::chrono::milliseconds(200);
      for (const auto& [name, says] : words) {
        progress_ += says.acts ? 1 : 0;
        From(name, [&, says = says](wire::FromWorker& message) {
          wire::Heartbeat& heartbeat = *message.mutable_heartbeat();
          heartbeat.set_generation(1);
          heartbeat.set_standing(says.standing);
          heartbeat.set_progress(says.acts ? progress_ : 1);
          heartbeat.set_waits(says.waits);
          heartbeat.set_waits_generation(of);
          if (!says.other.empty()) {
            heartbeat.add_waits_for(says.other);
          }
        });
      }
      Tell(Ticked());
    }
    return seconds;
  }

  int64_t progress_ = 1;
};

TEST_F(HangTest, InTheMiddleOfAChainItAloneIsGivenUpWithTheChainAsReason) {
  const double waited =
      WaitUntilALoss({{"a", {true, "b"}}, {"b", {true, "c"}}, {"c", {}}, {"d", {true, "a"}}}, 60);
  EXPECT_GE(waited, Seconds(job_.policy.hang_timeout));
  EXPECT_LE(waited, 1.2 * Seconds(job_.policy.hang_timeout));
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(std::get<std::string>(*Logged("worker_lost").Find("worker")), "c");
  EXPECT_THAT(std::get<std::string>(*Logged("worker_lost").Find("reason")),
              HasSubstr("d waits for a waits for b waits for c, which did nothing for 1"));
  for (const char* name : {"a", "b", "d"}) {
    EXPECT_NE(Last(name, wire::ToWorker::kHalt), nullptr) << name;
  }
}

TEST_F(HangTest, WhoDoesSomethingMayKeepTheOthersWaiting) {
  WaitUntilALoss({{"a", {true, "b"}}, {"b", {true, "c"}}, {"c", {false, "", true}}, {"d", {}}}, 60);
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(Last("a", wire::ToWorker::kHalt), nullptr);
}

TEST_F(HangTest, WhereAllHangAllRecoverAndWhoDoesNotAnswerIsGivenUp) {
  WaitUntilALoss({{"a", {}}, {"b", {}}, {"c", {}}, {"d", {}}}, 60);
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_NE(Last("c", wire::ToWorker::kHalt), nullptr);
}

// One was told to stop, and the end of the step that it did not hear was lost on its way to it.
TEST_F(HangTest, WhoHasStoppedAsAskedKeepsNobodyWaiting) {
  Join("e");
  ASSERT_TRUE(request_);
  const int64_t next = request_->generation;
  AnswerPlan();
  AnswerPrepared(next);
  ASSERT_NE(Last("b", wire::ToWorker::kStop), nullptr);
  for (const char* name : {"b", "c", "d"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(1);
    });
  }
  const Says stopped{false, "", false, wire::STANDING_STOPPED};
  WaitUntilALoss({{"a", {true, "b"}}, {"b", stopped}, {"c", stopped}, {"d", stopped}, {"e", {}}},
                 2 * Seconds(job_.policy.hang_timeout));
  EXPECT_EQ(Count("worker_lost"), 0);
}

TEST_F(HangTest, WhoMissedTheGoGetsItAgainDuringAChange) {
  Join("e");
  ASSERT_TRUE(request_) << "a plan with it is looked for";
  Hello("c", [](wire::Hello& hello) {
    hello.set_standing(wire::STANDING_READY);
    hello.set_standing_generation(1);
    hello.set_staged_generation(1);
  });
  ASSERT_NE(Last("c", wire::ToWorker::kGo), nullptr);
  EXPECT_EQ(Last("c", wire::ToWorker::kGo)->go().generation(), 1);
  const int64_t next = request_->generation;
  AnswerPlan();
  AnswerPrepared(next);
  sent_.clear();
  Hello("c", [](wire::Hello& hello) {
    hello.set_standing(wire::STANDING_READY);
    hello.set_standing_generation(1);
    hello.set_staged_generation(1);
  });
  std::vector<wire::ToWorker::KindCase> kinds;
  for (const wire::ToWorker& message : sent_["c"]) {
    kinds.push_back(message.kind_case());
  }
  EXPECT_THAT(kinds, testing::ElementsAre(wire::ToWorker::kWelcome, wire::ToWorker::kGo,
                                          wire::ToWorker::kStop));
}

TEST_F(HangTest, WhatIsSaidOfAnotherGenerationIsNoEvidence) {
  WaitUntilALoss({{"a", {true, "c"}}, {"b", {true, "c"}}, {"c", {}}, {"d", {}}}, 60, /*of=*/7);
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(Last("c", wire::ToWorker::kHalt), nullptr);
}

TEST_F(HangTest, ALongStepHasTime) {
  From("a", [](wire::FromWorker& message) {
    wire::StepRecord& record = *message.mutable_step_done()->add_records();
    record.set_step(1);
    record.set_generation(1);
    record.set_seconds(10);
  });
  const double waited = WaitUntilALoss({{"a", {true, "c"}}, {"b", {}}, {"c", {}}, {"d", {}}}, 300);
  EXPECT_GE(waited, 99);
  EXPECT_EQ(Count("worker_lost"), 1);
}

TEST_F(HangTest, WhenAllWaitInACircleAllRecoverAndWhoDoesNotAnswerHangs) {
  WaitUntilALoss({{"a", {true, "b"}}, {"b", {true, "c"}}, {"c", {true, "a"}}, {"d", {true, "a"}}},
                 60);
  EXPECT_EQ(Count("worker_lost"), 0);
  for (const char* name : {"a", "b", "d"}) {
    ASSERT_NE(Last(name, wire::ToWorker::kHalt), nullptr);
    Halted(name, Last(name, wire::ToWorker::kHalt)->halt().generation(), 0, 0, false);
  }
  sent_.clear();
  for (double waited = 0; waited < 2 * Seconds(job_.policy.reply_timeout); waited += 0.1) {
    Wait(0.1, {"a", "b", "c", "d"});
  }
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(std::get<std::string>(*Logged("worker_lost").Find("worker")), "c");
}

}  // namespace
}  // namespace heddle::elastic
