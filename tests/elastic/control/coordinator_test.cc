// Each flow of the coordinator, message by message: what it tells whom, and what it waits for.
#include "elastic/control/coordinator/coordinator.h"

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(CoordinatorTest, FormsWhenItsWorkersHaveCome) {
  Tell(Submitted{job_});
  Join("a");
  EXPECT_FALSE(request_.has_value());
  Join("b");
  AnswerPlan();
  ASSERT_NE(Last("a", wire::ToWorker::kPrepare), nullptr);
  EXPECT_EQ(Last("a", wire::ToWorker::kPrepare)->prepare().generation(), 1);
  EXPECT_EQ(stored_.generation_counter, 1);
  EXPECT_EQ(Last("a", wire::ToWorker::kStart), nullptr);
  AnswerPrepared(1);
  ASSERT_NE(Last("b", wire::ToWorker::kStart), nullptr);
  EXPECT_TRUE(Last("b", wire::ToWorker::kStart)->start().initial());
  AnswerReady({"a"}, 1);
  EXPECT_EQ(Last("a", wire::ToWorker::kGo), nullptr);
  AnswerReady({"b"}, 1);
  EXPECT_NE(Last("a", wire::ToWorker::kGo), nullptr);
  EXPECT_EQ(stored_.held->number, 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
}

TEST_F(CoordinatorTest, ProfilesOneWorkerOfAHostAtATime) {
  Tell(Submitted{job_});
  const auto same_host = [](wire::Hello& hello) { hello.set_host("one"); };
  Hello("a", same_host);
  Hello("b", same_host);
  EXPECT_NE(Last("a", wire::ToWorker::kProfile), nullptr);
  EXPECT_EQ(Last("b", wire::ToWorker::kProfile), nullptr);
  From("a", [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  EXPECT_NE(Last("b", wire::ToWorker::kProfile), nullptr);
}

TEST_F(CoordinatorTest, AnotherProgramIsRefused) {
  Tell(Submitted{job_});
  Join("a");
  Join("b");
  AnswerPlan();
  From("a", [](wire::FromWorker& message) {
    message.mutable_prepared()->set_generation(1);
    message.mutable_prepared()->set_program_hash(99);
  });
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_THAT(std::get<std::string>(*log_.back().Find("reason")), HasSubstr("program differs"));
  EXPECT_NE(Last("a", wire::ToWorker::kAbandon), nullptr);
}

TEST_F(CoordinatorTest, ABrokenStreamWithAnAccusationIsALossAtOnce) {
  Form();
  From("a", [](wire::FromWorker& message) {
    message.mutable_peer_lost()->set_generation(1);
    message.mutable_peer_lost()->set_peer("b");
  });
  EXPECT_EQ(Count("worker_lost"), 0);
  Tell(Disconnected{connections_.at("b")});
  EXPECT_EQ(Count("worker_lost"), 1);
  ASSERT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
  EXPECT_EQ(Last("a", wire::ToWorker::kHalt)->halt().generation(), 2);
  EXPECT_GE(stored_.generation_counter, 2);
}

TEST_F(CoordinatorTest, ABrokenStreamAloneHasItsGrace) {
  Form();
  Tell(Disconnected{connections_.at("b")});
  now_ += std::chrono::milliseconds(200);
  Tell(Ticked());
  EXPECT_EQ(Count("worker_lost"), 0);
  Hello("b", [](wire::Hello& hello) {
    hello.set_generation(1);
    hello.set_standing(wire::STANDING_TRAINING);
  });
  Wait(2, {"a", "b"});
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(Count("worker_joined"), 2);
}

TEST_F(CoordinatorTest, ASilentWorkerIsLostWithItsLease) {
  Form();
  Wait(2.8, {"a"});
  EXPECT_EQ(Count("worker_lost"), 0);
  Wait(0.4, {"a"});
  EXPECT_EQ(Count("worker_lost"), 1);
}

// The coordinator's own disk kept it for longer than a lease: what came meanwhile counts before
// anybody's silence does.
TEST_F(CoordinatorTest, WordsThatWaitedForTheCoordinatorAreHeardBeforeLeasesEnd) {
  Form();
  Wait(0.2, {"a", "b"});
  now_ += FromSeconds(3.3);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_heartbeat()->set_standing(wire::STANDING_TRAINING);
    });
    EXPECT_EQ(Count("worker_lost"), 0) << name;
  }
  Tell(Ticked());
  EXPECT_EQ(Count("worker_lost"), 0);
}

// So late that everybody's lease ended long ago, and its own clock comes before any word: whoever
// trains has time to come back.
TEST_F(CoordinatorTest, ACoordinatorThatStoodStillForgivesTheSilenceThatWasItsOwn) {
  Form();
  Wait(0.2, {"a", "b"});
  now_ += 10 * job_.policy.lease;
  Tell(Ticked());
  EXPECT_EQ(Count("worker_lost"), 0);
  From("a", [](wire::FromWorker& message) { message.mutable_heartbeat(); });
  const Time until = now_ + job_.policy.lease + job_.policy.adopt_extra;
  while (now_ < until) {
    EXPECT_EQ(Count("worker_lost"), 0);
    Wait(0.1, {"a"});
  }
  EXPECT_EQ(Count("worker_lost"), 1) << "b is still silent";
}

// A tick that is a little late is no excuse: silence has been heard.
TEST_F(CoordinatorTest, ATickThatIsALittleLateForgivesNothing) {
  Form();
  const Time lease_ends = now_ + job_.policy.lease;
  Wait(2.8, {"a"});
  for (const Duration late : {job_.policy.lease / 4, job_.policy.lease / 4 + Duration(1)}) {
    Coordinator copy = coordinator_;
    const Time due = *copy.NextDeadline();
    ASSERT_EQ(due, lease_ends);
    const auto actions = copy.Handle(Ticked(), due + late);
    const bool lost = std::ranges::any_of(actions, [](const CoordinatorAction& action) {
      return std::holds_alternative<WorkerGone>(action);
    });
    EXPECT_EQ(lost, late == job_.policy.lease / 4);
  }
}

// Its network is cut, or it is stopped: they train on without it.
TEST_F(CoordinatorTest, ACoordinatorThatHearsNobodyGivesUpNobody) {
  Form();
  const Time last_heard_at = now_;
  Wait(60, {});
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(Count("cut_off"), 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "cut off");
  EXPECT_THAT(coordinator_.StatusAt(now_).reason(), HasSubstr("no worker is heard for 60 s"));
  Wait(0.2, {"a", "b"});
  ASSERT_EQ(Count("heard_again"), 1);
  EXPECT_NEAR(std::get<double>(*log_.back().Find("seconds")), Seconds(now_ - last_heard_at), 0.2);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  EXPECT_EQ(Last("a", wire::ToWorker::kHalt), nullptr);
}

// Who is refused proves nothing: neither that the coordinator hears its workers, nor that they
// live.
TEST_F(CoordinatorTest, AHelloThatIsRefusedExcusesNobody) {
  job_.policy.cut_off_timeout = std::chrono::seconds(20);
  Form();
  for (int second = 0; second < 25; ++second) {
    Hello("x", [](wire::Hello& hello) { hello.set_protocol_version(kProtocolVersion + 1); });
    Wait(1, {});
  }
  EXPECT_EQ(Count("cut_off"), 1);
  EXPECT_EQ(Count("heard_again"), 0);
  EXPECT_EQ(Count("worker_lost"), 2);
}

// Nobody is left: the job waits for others, and says so.
TEST_F(CoordinatorTest, AfterItsTimeACutOffCoordinatorGoesOnWithoutThem) {
  job_.policy.cut_off_timeout = std::chrono::seconds(20);
  job_.policy.paused_timeout = std::chrono::seconds(5);
  Form();
  Wait(21, {});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "paused");
  Wait(6, {});
  EXPECT_TRUE(end_.has_value());
}

// Whoever answers is heard late, and so is its answer.
TEST_F(CoordinatorTest, WhatIsOwedWhileNobodyIsHeardIsNotLate) {
  Form();
  Tell(ProcessExited{"b", 0, "killed"});
  ASSERT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
  Wait(60, {});
  EXPECT_EQ(Count("worker_lost"), 1) << "b";
  Wait(1, {"a"});
  EXPECT_EQ(Count("worker_lost"), 1);
  Halted("a", 2, 0, 0, false);
  Wait(1, {"a"});
  EXPECT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(Count("recovery_source"), 1);
}

TEST_F(CoordinatorTest, ALossSettlesTheStepWithTheNormThatASurvivorKnows) {
  job_.policy.initial_workers = 3;
  Tell(Submitted{job_});
  for (const char* name : {"a", "b", "c"}) {
    Join(name);
  }
  AnswerPlan();
  AnswerPrepared(1);
  AnswerReady({"a", "b", "c"}, 1);
  Tell(ProcessExited{"c", 0, "killed by SIGKILL"});
  EXPECT_EQ(std::get<std::string>(*log_.back().Find("reason")), "killed by SIGKILL");
  Halted("a", 2, 4, 4, true);  // Voted on step 5, does not know the result.
  Halted("b", 2, 4, 5, true);  // Knows it.
  EXPECT_FALSE(request_.has_value()) << "further losses are waited for";
  Wait(0.2, {"a", "b"});
  ASSERT_TRUE(request_.has_value());
  EXPECT_TRUE(request_->candidates[0].holds_state);
  AnswerPlan();
  AnswerPrepared(3);
  const wire::Start& start = Last("a", wire::ToWorker::kStart)->start();
  EXPECT_EQ(start.applied_step(), 5);
  EXPECT_EQ(start.settle().step(), 5);
  EXPECT_EQ(start.settle().norm(), 0.25);
  EXPECT_THAT(
      std::vector<std::string>(start.held().workers().begin(), start.held().workers().end()),
      ElementsAre("a", "b"));
  AnswerReady({"a", "b"}, 3);
  EXPECT_EQ(Count("resumed"), 1);
}

TEST_F(CoordinatorTest, WithoutANormTheStepIsRunAgain) {
  Form();
  Step(1);
  Tell(ProcessExited{"b", 0, "killed"});
  Halted("a", 2, 1, 1, true);
  Wait(0.2, {"a"});
  AnswerPlan();
  AnswerPrepared(3);
  const wire::Start& start = Last("a", wire::ToWorker::kStart)->start();
  EXPECT_EQ(start.applied_step(), 1);
  EXPECT_FALSE(start.has_settle());
  AnswerReady({"a"}, 3);
  EXPECT_EQ(std::get<int64_t>(*Logged("resumed").Find("steps_repeated")), 0);
}

TEST_F(CoordinatorTest, TheSoleHoldersLossGoesBackToTheCheckpoint) {
  Form(/*split=*/true);
  for (int64_t step = 1; step <= 12; ++step) {
    Step(step);
    if (step == 10) {
      for (const char* name : {"a", "b"}) {
        From(name, [&](wire::FromWorker& message) {
          message.mutable_checkpoint_part()->set_step(10);
          message.mutable_checkpoint_part()->set_generation(1);
          message.mutable_checkpoint_part()->set_part(name);
        });
      }
      ASSERT_EQ(commits_.size(), 1U);
      EXPECT_THAT(commits_[0].parts, ElementsAre("a", "b"));
      CheckpointCommitted done;
      done.step = 10;
      done.generation = 1;
      Tell(done);
    }
  }
  Tell(ProcessExited{"b", 0, "killed"});
  Halted("a", 2, 12, 12, false);
  Wait(0.2, {"a"});
  AnswerPlan(true);
  AnswerPrepared(3);
  const wire::Start& start = Last("a", wire::ToWorker::kStart)->start();
  EXPECT_EQ(start.checkpoint_step(), 10);
  EXPECT_EQ(start.applied_step(), 10);
  AnswerReady({"a"}, 3);
  EXPECT_EQ(std::get<int64_t>(*Logged("resumed").Find("steps_repeated")), 2);
  Step(11);
  EXPECT_EQ(std::get<int64_t>(*log_.back().Find("step")), 11);
}

TEST_F(CoordinatorTest, ACheckpointLearnsItsValidationLossWheneverThatComes) {
  Form(/*split=*/true);
  const auto validate = [&](int64_t step, double loss) {
    for (const char* name : {"a", "b"}) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_validation()->set_step(step);
        message.mutable_validation()->set_generation(1);
        message.mutable_validation()->set_loss(loss);
      });
    }
  };
  const auto save = [&](int64_t step) {
    for (const char* name : {"a", "b"}) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_checkpoint_part()->set_step(step);
        message.mutable_checkpoint_part()->set_generation(1);
      });
    }
  };
  const auto committed = [&](int64_t step) {
    CheckpointCommitted done;
    done.step = step;
    done.generation = 1;
    Tell(done);
  };
  for (int64_t step = 1; step <= 3; ++step) {
    Step(step);
  }
  validate(1, 3.5);
  save(1);
  ASSERT_EQ(commits_.size(), 1U);
  EXPECT_EQ(commits_[0].facts.validation_loss, 3.5);
  committed(1);
  EXPECT_TRUE(notes_.empty()) << "it was known at the commit";
  save(2);
  ASSERT_EQ(commits_.size(), 2U);
  EXPECT_EQ(commits_[1].facts.validation_loss, std::nullopt);
  validate(2, 2.5);
  ASSERT_EQ(notes_.size(), 1U) << "while it is being committed";
  EXPECT_EQ(notes_[0].step, 2);
  EXPECT_EQ(notes_[0].loss, 2.5);
  committed(2);
  save(3);
  committed(3);
  validate(3, 1.5);
  ASSERT_EQ(notes_.size(), 2U) << "afterwards, once";
  EXPECT_EQ(notes_[1].step, 3);
}

TEST_F(CoordinatorTest, ADrainedWorkerGivesItsStateAndIsReleased) {
  Form();
  Tell(DrainRequested{"b"});
  Wait(0.2, {"a", "b"});
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->candidates.size(), 1U);
  AnswerPlan();
  AnswerPrepared(3);
  From("b", [](wire::FromWorker& message) { message.mutable_prepared()->set_generation(3); });
  for (const char* name : {"a", "b"}) {
    ASSERT_NE(Last(name, wire::ToWorker::kStop), nullptr);
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(7);
    });
  }
  const wire::Start& start = Last("b", wire::ToWorker::kStart)->start();
  EXPECT_EQ(start.generation(), 3);
  EXPECT_EQ(start.move_generation(), 2);
  EXPECT_EQ(start.move_members_size(), 2);
  AnswerReady({"a", "b"}, 3);
  EXPECT_NE(Last("b", wire::ToWorker::kRelease), nullptr);
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(Count("worker_left"), 1);
  EXPECT_EQ(Count("resumed"), 0);
}

TEST_F(CoordinatorTest, AJoinThatDoesNotPayIsLeftOut) {
  job_.policy.total_steps = 3;
  Form();
  Join("c");
  ASSERT_TRUE(request_.has_value());
  EXPECT_TRUE(request_->current_runs);
  PlanOutcome outcome;
  outcome.request_id = request_->id;
  outcome.members = {"a", "b", "c"};
  outcome.predicted_step_seconds = 0.9;
  outcome.current_step_seconds = 1;
  outcome.move_seconds = 5;  // Three steps cannot earn it.
  TakePlan(outcome);
  EXPECT_EQ(Last("a", wire::ToWorker::kPrepare), nullptr);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
}

TEST_F(CoordinatorTest, BetweenTwoLiveWorkersTheMostAccusedGoes) {
  job_.policy.initial_workers = 3;
  Tell(Submitted{job_});
  for (const char* name : {"a", "b", "c"}) {
    Join(name);
  }
  AnswerPlan();
  AnswerPrepared(1);
  AnswerReady({"a", "b", "c"}, 1);
  const auto accuse = [&](const std::string& accuser, const std::string& accused) {
    From(accuser, [&](wire::FromWorker& message) {
      message.mutable_peer_lost()->set_generation(1);
      message.mutable_peer_lost()->set_peer(accused);
    });
  };
  accuse("a", "b");
  accuse("b", "a");
  accuse("c", "a");
  Wait(0.7, {"a", "b", "c"});
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(Last("a", wire::ToWorker::kAbandon), nullptr) << "it may begin anew";
  Hello("a", [](wire::Hello& hello) { hello.set_generation(1); });
  EXPECT_TRUE(Last("a", wire::ToWorker::kRefused)->refused().rejoins());
}

TEST_F(CoordinatorTest, AStaleWorkerIsRefused) {
  Form();
  Wait(3.2, {"a"});
  ASSERT_EQ(Count("worker_lost"), 1);
  Hello("b", [](wire::Hello& hello) { hello.set_generation(1); });
  ASSERT_NE(Last("b", wire::ToWorker::kRefused), nullptr);
  EXPECT_TRUE(Last("b", wire::ToWorker::kRefused)->refused().permanent());
  EXPECT_TRUE(Last("b", wire::ToWorker::kRefused)->refused().rejoins()) << "without what it holds";
  EXPECT_THAT(Last("b", wire::ToWorker::kRefused)->refused().reason(), HasSubstr("stale"));
  Hello("x", [](wire::Hello& hello) { hello.set_generation(1); });
  EXPECT_TRUE(Last("x", wire::ToWorker::kRefused)->refused().permanent());
  EXPECT_TRUE(Last("x", wire::ToWorker::kRefused)->refused().rejoins());
  Hello("y", [](wire::Hello& hello) { hello.set_protocol_version(kProtocolVersion + 1); });
  EXPECT_TRUE(Last("y", wire::ToWorker::kRefused)->refused().permanent());
  EXPECT_FALSE(Last("y", wire::ToWorker::kRefused)->refused().rejoins()) << "it would be the same";
}

// It had joined, and no generation had begun: nothing but its incarnation tells it.
TEST_F(CoordinatorTest, AWorkerThatWasGivenUpBeforeItsFirstGenerationDoesNotComeBack) {
  job_.policy.profile_timeout = std::chrono::seconds(1);
  Tell(Submitted{job_});
  Hello("a");
  Wait(1.2, {"a"});
  ASSERT_EQ(Count("worker_lost"), 1);
  sent_.clear();
  Hello("a");
  ASSERT_NE(Last("a", wire::ToWorker::kRefused), nullptr);
  EXPECT_TRUE(Last("a", wire::ToWorker::kRefused)->refused().permanent());
  EXPECT_EQ(Last("a", wire::ToWorker::kWelcome), nullptr);
}

TEST_F(CoordinatorTest, FinishesWithTheLastCheckpoint) {
  job_.policy.total_steps = 1;
  Form();
  Step(1);
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(commits_.empty()) << "both hold the parameter, so both report what they wrote";
    From(name, [](wire::FromWorker& message) {
      message.mutable_checkpoint_part()->set_step(1);
      message.mutable_checkpoint_part()->set_generation(1);
    });
  }
  EXPECT_EQ(commits_.size(), 1U);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_finished()->set_generation(1);
      message.mutable_finished()->set_step(1);
    });
  }
  EXPECT_FALSE(end_.has_value());
  CheckpointCommitted done;
  done.step = 1;
  done.generation = 1;
  Tell(done);
  ASSERT_TRUE(end_.has_value());
  EXPECT_TRUE(end_->ok);
  EXPECT_EQ(log_.back().kind, "job_finished");
  EXPECT_TRUE(stored_.finished);
  EXPECT_NE(Last("a", wire::ToWorker::kRelease), nullptr);
}

TEST_F(CoordinatorTest, ASkippedCheckpointIsAnEventAndNotAFailure) {
  Form();
  Step(1);
  From("a", [](wire::FromWorker& message) {
    message.mutable_checkpoint_part()->set_step(1);
    message.mutable_checkpoint_part()->set_generation(1);
    message.mutable_checkpoint_part()->set_skipped(true);
  });
  EXPECT_EQ(Count("checkpoint_skipped"), 1);
  EXPECT_EQ(Count("checkpoint_failed"), 0);
  EXPECT_TRUE(commits_.empty());
}

TEST_F(CoordinatorTest, ASaveThatFailsForSeveralWorkersIsOneFailure) {
  job_.policy.checkpoint_every = 1;
  Form();
  const auto report = [&](const char* name, int64_t step, const char* error) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_checkpoint_part()->set_step(step);
      message.mutable_checkpoint_part()->set_generation(1);
      message.mutable_checkpoint_part()->set_error(error);
    });
  };
  Step(1);
  report("a", 1, "No space left on a");
  report("b", 1, "No space left on b");
  EXPECT_EQ(Count("checkpoint_failed"), 1);
  Step(2);
  report("b", 2, "No space left on b");
  report("a", 2, "");
  EXPECT_EQ(Count("checkpoint_failed"), 2);
  EXPECT_TRUE(commits_.empty()) << "a part of a save that failed";
  Step(3);
  report("a", 3, "");
  report("b", 3, "");
  EXPECT_EQ(commits_.size(), 1U);
}

TEST_F(CoordinatorTest, ANumberThatIsNotFiniteEndsTheJob) {
  Form();
  From("a", [](wire::FromWorker& message) {
    wire::StepRecord& record = *message.mutable_step_done()->add_records();
    record.set_step(1);
    record.set_generation(1);
    record.set_not_finite(true);
  });
  ASSERT_TRUE(end_.has_value());
  EXPECT_FALSE(end_->ok);
  EXPECT_THAT(end_->reason, HasSubstr("step 1 is not finite"));
  EXPECT_NE(Last("a", wire::ToWorker::kAbandon), nullptr);
}

TEST_F(CoordinatorTest, ARestartAdoptsWorkersThatTrain) {
  Form();
  Step(1);
  Wait(1.2, {"a", "b"});
  EXPECT_EQ(stored_.known_step, 1);
  coordinator_ = Coordinator(stored_, job_, now_);
  sent_.clear();
  for (const char* name : {"a", "b"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_applied_step(3);
      hello.set_standing(wire::STANDING_TRAINING);
      hello.set_standing_generation(1);
    });
  }
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  EXPECT_TRUE(Last("a", wire::ToWorker::kWelcome)->welcome().again());
  EXPECT_EQ(Last("a", wire::ToWorker::kWelcome)->welcome().known_step(), 1);
  EXPECT_EQ(Last("a", wire::ToWorker::kHalt), nullptr);
  EXPECT_EQ(Count("coordinator_restarted"), 1);
}

TEST_F(CoordinatorTest, ANewJobGoesOnFromACheckpointOfAnotherRun) {
  job_.checkpoints = {10};
  Form();
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 10);
  Step(11);
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 11);
  EXPECT_EQ(Count("step"), 1);
}

TEST_F(CoordinatorTest, ARestartKnowsTheCheckpointsThatAreSoundNow) {
  Form();
  stored_.checkpoints = {10, 20};
  job_.checkpoints = {10};  // What its successor found: 20 is damaged.
  coordinator_ = Coordinator(stored_, job_, now_);
  const wire::JobStatus status = coordinator_.StatusAt(now_);
  ASSERT_EQ(status.checkpoint_steps_size(), 1);
  EXPECT_EQ(status.checkpoint_steps(0), 10);
}

TEST_F(CoordinatorTest, ARestartKeepsTheNamesThatItsPredecessorGave) {
  Tell(Submitted{job_});
  Hello("", [](wire::Hello& hello) { hello.set_incarnation(std::string(16, '1')); });
  EXPECT_EQ(Last("", wire::ToWorker::kWelcome)->welcome().name(), "worker-1");
  coordinator_ = Coordinator(stored_, job_, now_);
  Hello("", [](wire::Hello& hello) { hello.set_incarnation(std::string(16, '2')); });
  EXPECT_EQ(Last("", wire::ToWorker::kWelcome)->welcome().name(), "worker-2");
  Hello("worker-1", [](wire::Hello& hello) { hello.set_incarnation(std::string(16, '1')); });
  ASSERT_NE(Last("worker-1", wire::ToWorker::kWelcome), nullptr);
  EXPECT_TRUE(Last("worker-1", wire::ToWorker::kWelcome)->welcome().again());
}

TEST_F(CoordinatorTest, ARestartGivesUpThoseThatDoNotComeBack) {
  Form();
  coordinator_ = Coordinator(stored_, job_, now_);
  Hello("a", [](wire::Hello& hello) {
    hello.set_generation(1);
    hello.set_standing(wire::STANDING_HALTED);
  });
  Wait(4.8, {"a"});
  EXPECT_EQ(Count("worker_lost"), 0);
  Wait(0.4, {"a"});
  EXPECT_EQ(Count("worker_lost"), 1);
  ASSERT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
  EXPECT_GT(Last("a", wire::ToWorker::kHalt)->halt().generation(), 1);
}

TEST_F(CoordinatorTest, DriftIsActedOnWhenItLastsAndPays) {
  Form();
  const auto window = [&](int64_t number, double ratio) {
    From("b", [&](wire::FromWorker& message) {
      wire::Heartbeat& heartbeat = *message.mutable_heartbeat();
      heartbeat.set_generation(1);
      heartbeat.set_window(number);
      heartbeat.set_busy_seconds(ratio);
      heartbeat.set_predicted_busy_seconds(1);
    });
  };
  for (int64_t number = 1; number <= 4; ++number) {
    window(number, 3);
  }
  EXPECT_FALSE(request_.has_value()) << "the first window does not count, three are too few";
  window(5, 3);
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->candidates[1].slowdown, 3);
  EXPECT_EQ(request_->candidates[0].slowdown, 1);
  EXPECT_TRUE(request_->current_runs);
}

// The plan that is found makes steps half as long.
TEST_F(CoordinatorTest, AGainWithinTheNoiseOfTheDriftIsNone) {
  const Coordinator fresh = coordinator_;
  job_.policy.total_steps = 1'000'000;
  for (const double noise : {0.6, 0.3}) {
    coordinator_ = fresh;
    Form();
    int64_t number = 0;
    for (const double ratio : {9.0, 1.0, 1.0, 4 * (1 - noise), 4.0, 4 * (1 + noise), 9.0}) {
      From("b", [&](wire::FromWorker& message) {
        wire::Heartbeat& heartbeat = *message.mutable_heartbeat();
        heartbeat.set_generation(1);
        heartbeat.set_window(++number);
        heartbeat.set_busy_seconds(ratio);
        heartbeat.set_predicted_busy_seconds(1);
      });
    }
    ASSERT_TRUE(request_.has_value());
    EXPECT_EQ(request_->candidates[1].slowdown, 4);
    AnswerPlan();
    EXPECT_EQ(Last("a", wire::ToWorker::kPrepare) == nullptr, noise > 0.5);
  }
}

}  // namespace
}  // namespace heddle::elastic
