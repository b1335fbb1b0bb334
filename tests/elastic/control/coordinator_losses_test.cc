// Losses, accusations and restarts: what each means for the job, and what it does not.
#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class LossesTest : public CoordinatorTest {
 protected:
  void Accuse(const std::string& accuser, const std::string& peer, int64_t generation = 1) {
    From(accuser, [&](wire::FromWorker& message) {
      message.mutable_peer_lost()->set_generation(generation);
      message.mutable_peer_lost()->set_peer(peer);
    });
  }
  void FormThree() {
    job_.policy.initial_workers = 3;
    Tell(Submitted{job_});
    for (const char* name : {"a", "b", "c"}) {
      Join(name);
    }
    AnswerPlan();
    AnswerPrepared(1);
    AnswerReady(members_, 1);
    sent_.clear();
  }
  int64_t Fence(const std::string& name) {
    return Last(name, wire::ToWorker::kHalt)->halt().generation();
  }
  // Everybody in `alive` has applied `step`; the new generation takes it from there.
  void Recover(const std::vector<std::string>& alive, int64_t step) {
    for (const std::string& name : alive) {
      const int64_t held = stored_.held->number;
      From(name, [&](wire::FromWorker& message) {
        wire::Halted& halted = *message.mutable_halted();
        halted.set_generation(Fence(name));
        halted.set_held_generation(held);
        halted.set_applied_step(step);
        halted.set_norm_step(step);
      });
    }
    Wait(0.2, alive);
    ASSERT_TRUE(request_.has_value());
    const int64_t generation = request_->generation;
    AnswerPlan();
    AnswerPrepared(generation);
    AnswerReady(members_, generation);
  }
};

// Somebody failed without knowing why, and everybody answers: once more with all of them.
TEST_F(LossesTest, AFailureThatNamesNobodyIsARecoveryWithEverybody) {
  Form();
  Accuse("a", "");
  Wait(0.4, {"a", "b"});
  EXPECT_EQ(Last("a", wire::ToWorker::kHalt), nullptr);
  Wait(0.2, {"a", "b"});
  for (const char* name : {"a", "b"}) {
    ASSERT_NE(Last(name, wire::ToWorker::kHalt), nullptr) << name;
  }
  EXPECT_EQ(Count("worker_lost"), 0);
  Recover({"a", "b"}, 0);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
}

TEST_F(LossesTest, OneThatSeveralAccuseIsLostOnce) {
  FormThree();
  Accuse("a", "b");
  Accuse("c", "b");
  Wait(0.7, {"a", "c"});
  EXPECT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 2);
  EXPECT_FALSE(end_.has_value());
}

TEST_F(LossesTest, ALossDuringTheMoveIsAnotherRecovery) {
  FormThree();
  Tell(ProcessExited{"c", 0, "killed"});
  for (const char* name : {"a", "b"}) {
    Halted(name, 2, 0, 0, false);
  }
  Wait(0.2, {"a", "b"});
  AnswerPlan();
  AnswerPrepared(3);
  Accuse("a", "b", 2);  // Of the move's own group.
  Tell(Disconnected{connections_.at("b")});
  EXPECT_EQ(Count("worker_lost"), 2);
  EXPECT_EQ(Fence("a"), 4);
}

TEST_F(LossesTest, AnAnswerThatNobodyWaitsForIsNone) {
  Form();
  Halted("a", 1, 5, 5, false);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  Tell(ProcessExited{"b", 0, "killed"});
  Halted("a", 1, 5, 5, false);
  Wait(0.2, {"a"});
  EXPECT_FALSE(request_.has_value()) << "it answers an older fence";
  Halted("a", 2, 5, 5, false);
  Wait(0.2, {"a"});
  EXPECT_TRUE(request_.has_value());
}

TEST_F(LossesTest, RecordsThatComeWithTheAnswerCount) {
  Form();
  Tell(ProcessExited{"b", 0, "killed"});
  From("a", [](wire::FromWorker& message) {
    wire::Halted& halted = *message.mutable_halted();
    halted.set_generation(2);
    halted.set_held_generation(1);
    halted.set_applied_step(2);
    halted.set_norm_step(2);
    for (const int64_t step : {1, 2}) {
      wire::StepRecord& record = *halted.add_records();
      record.set_step(step);
      record.set_generation(1);
    }
    halted.mutable_records(1)->set_not_finite(true);
  });
  EXPECT_EQ(Count("step"), 2);
  ASSERT_TRUE(end_.has_value());
  EXPECT_FALSE(end_->ok);
  EXPECT_FALSE(end_->bad_input);
  EXPECT_THAT(end_->reason, HasSubstr("step 2 is not finite"));
}

TEST_F(LossesTest, OnlyAStepThatIsNewStartsTheCountOfRecoveriesAnew) {
  job_.policy.max_recoveries_without_step = 1;
  FormThree();
  Step(1);
  Tell(ProcessExited{"c", 0, "killed"});
  Recover({"a", "b"}, 1);
  Step(2);
  Accuse("a", "", stored_.held->number);
  Wait(0.7, {"a", "b"});
  ASSERT_FALSE(end_.has_value()) << "step 2 was made in between";
  Recover({"a", "b"}, 2);
  Step(2);  // Known already.
  Accuse("a", "", stored_.held->number);
  Wait(0.7, {"a", "b"});
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->reason, "1 recoveries in a row without a completed step");
}

TEST_F(LossesTest, AMoveThatFailsIsBlamedOnThePeerThatIsNamed) {
  for (const std::string peer : {"b", "a"}) {
    coordinator_ = Coordinator();
    log_.clear();
    sent_.clear();
    Tell(Submitted{job_});
    Join("a");
    Join("b");
    AnswerPlan();
    AnswerPrepared(1);
    From("a", [&](wire::FromWorker& message) {
      message.mutable_ready()->set_generation(1);
      message.mutable_ready()->set_error("connection reset");
      message.mutable_ready()->set_peer(peer);
    });
    EXPECT_EQ(Count("worker_lost"), 0) << "it may have been the other end";
    Tell(Disconnected{connections_.at("b")});
    // One that names itself does not know who it was, and nobody is a member yet.
    EXPECT_EQ(Count("worker_lost"), peer == "b" ? 1 : 0);
  }
}

TEST_F(LossesTest, AJobWithoutAPlanIsLookedAtWhenItsTimeIsOver) {
  job_.policy.min_workers = 2;
  job_.policy.paused_timeout = std::chrono::seconds(1);
  Form();
  Tell(ProcessExited{"b", 0, "killed"});
  Halted("a", 2, 0, 0, false);
  now_ += job_.policy.coalesce;
  Tell(Ticked());
  ASSERT_EQ(coordinator_.StatusAt(now_).phase(), "paused");
  const Time over = now_ + std::chrono::seconds(1);
  EXPECT_EQ(coordinator_.NextDeadline(), over);
  now_ = over - Duration(1);
  Tell(Ticked());
  EXPECT_FALSE(end_.has_value());
  now_ = over;
  Tell(Ticked());
  ASSERT_TRUE(end_.has_value());
  EXPECT_FALSE(end_->bad_input) << "it has run before";
  EXPECT_THAT(end_->reason, HasSubstr("no plan: "));
}

class RestartTest : public CoordinatorTest {
 protected:
  // Both come back, b as it says; whether training goes on as if nothing had been.
  bool GoesOn(int64_t generation, wire::Standing standing) {
    coordinator_ = Coordinator();
    log_.clear();
    Form();
    coordinator_ = Coordinator(stored_, job_, now_);
    sent_.clear();
    for (const char* name : {"a", "b"}) {
      Hello(name, [&](wire::Hello& hello) {
        hello.set_generation(1);
        hello.set_standing(*name == 'a' ? wire::STANDING_TRAINING : standing);
        hello.set_standing_generation(*name == 'a' ? 1 : generation);
      });
    }
    const bool halted = Last("a", wire::ToWorker::kHalt) != nullptr;
    EXPECT_NE(halted, Count("coordinator_restarted") == 1);
    EXPECT_EQ(Last("b", wire::ToWorker::kGo) != nullptr,
              !halted && standing == wire::STANDING_READY);
    return !halted;
  }
};

TEST_F(RestartTest, TrainingGoesOnWhereAllMembersAreAtIt) {
  EXPECT_TRUE(GoesOn(1, wire::STANDING_TRAINING));
  EXPECT_TRUE(GoesOn(1, wire::STANDING_FINISHED));
  EXPECT_TRUE(GoesOn(1, wire::STANDING_READY));
  EXPECT_FALSE(GoesOn(1, wire::STANDING_IDLE));
  EXPECT_FALSE(GoesOn(1, wire::STANDING_STOPPED));
  EXPECT_FALSE(GoesOn(1, wire::STANDING_HALTED));
  EXPECT_FALSE(GoesOn(1, wire::STANDING_MOVING));
  EXPECT_FALSE(GoesOn(2, wire::STANDING_TRAINING)) << "of another generation";
  EXPECT_FALSE(GoesOn(0, wire::STANDING_READY));
}

// It comes back just when another generation is looked for, because somebody has joined.
TEST_F(CoordinatorTest, WhoDidNotHearTheGoHearsItAlsoDuringAChange) {
  Form();
  Tell(Disconnected{connections_.at("b")});
  Join("c");
  ASSERT_TRUE(request_.has_value());
  const auto come_back = [&] {
    sent_.clear();
    Hello("b", [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_standing(wire::STANDING_READY);
      hello.set_standing_generation(1);
    });
    return Last("b", wire::ToWorker::kGo) != nullptr;
  };
  EXPECT_TRUE(come_back());
  AnswerPlan();
  AnswerPrepared(3);
  ASSERT_NE(Last("a", wire::ToWorker::kStop), nullptr);
  EXPECT_TRUE(come_back());
  EXPECT_EQ(sent_["b"].back().kind_case(), wire::ToWorker::kStop) << "which counts after the Go";
  Tell(ProcessExited{"a", 0, "killed"});
  EXPECT_FALSE(come_back()) << "that generation is over";
}

TEST_F(RestartTest, WhoWasAskedToLeaveLeaves) {
  Form();
  Tell(DrainRequested{"b"});
  request_.reset();
  coordinator_ = Coordinator(stored_, job_, now_);
  for (const char* name : {"a", "b"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_standing(wire::STANDING_TRAINING);
      hello.set_standing_generation(1);
    });
  }
  Wait(0.2, {"a", "b"});
  ASSERT_TRUE(request_.has_value());
  ASSERT_EQ(request_->candidates.size(), 1U);
  EXPECT_EQ(request_->candidates[0].name, "a");
}

TEST_F(RestartTest, WhoIsLostWhileItLeavesIsReleasedWhenItComesBack) {
  Form();
  Tell(DrainRequested{"b"});
  Wait(4, {"a"});
  ASSERT_EQ(Count("worker_lost"), 1);
  coordinator_ = Coordinator(stored_, job_, now_);
  sent_.clear();
  Hello("b", [](wire::Hello& hello) {
    hello.set_generation(1);
    hello.set_standing(wire::STANDING_TRAINING);
    hello.set_standing_generation(1);
  });
  ASSERT_NE(Last("b", wire::ToWorker::kRelease), nullptr);
  EXPECT_EQ(Last("b", wire::ToWorker::kRelease)->release().reason(), "drained");
}

TEST_F(RestartTest, AMemberThatThePlanHasAndTheRosterHasNotIsALoss) {
  Form();
  stored_.held->members.erase("b");  // It was given up just before.
  stored_.workers.erase("b");
  coordinator_ = Coordinator(stored_, job_, now_);
  sent_.clear();
  Hello("a", [](wire::Hello& hello) {
    hello.set_generation(1);
    hello.set_standing(wire::STANDING_TRAINING);
    hello.set_standing_generation(1);
  });
  EXPECT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
}

// The time without training is logged where there was any before.
TEST_F(RestartTest, TheTimeUntilTheNextGenerationIsLoggedWhereStepsWereKnown) {
  for (const int64_t known : {0, 3}) {
    DurableState stored;
    stored.job_id = "job";
    stored.known_step = known;
    coordinator_ = Coordinator(stored, job_, now_);
    log_.clear();
    now_ += std::chrono::seconds(2);
    Tell(Ticked());
    EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "forming");
    Join("a");
    Join("b");
    const int64_t generation = request_->generation;
    AnswerPlan();
    AnswerPrepared(generation);
    AnswerReady(members_, generation);
    EXPECT_EQ(Count("resumed"), known > 0 ? 1 : 0);
    if (known > 0) {
      EXPECT_EQ(std::get<double>(*Logged("resumed").Find("seconds")), 2);
      EXPECT_EQ(std::get<int64_t>(*Logged("resumed").Find("steps_repeated")), 3) << "from the seed";
    }
  }
}

}  // namespace
}  // namespace heddle::elastic
