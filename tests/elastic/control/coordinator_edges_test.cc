// What the coordinator says of itself, when it wants to be called next, and what it leaves alone.
#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

TEST_F(CoordinatorTest, ItsPhaseIsShownFromTheFirstWorkerToTheEnd) {
  const auto phase = [this] { return coordinator_.StatusAt(now_).phase(); };
  EXPECT_EQ(phase(), "idle");
  job_.policy.min_workers = 2;
  Tell(Submitted{job_});
  EXPECT_EQ(phase(), "forming");
  Join("a");
  Join("b");
  EXPECT_EQ(phase(), "forming") << "a plan is looked for";
  AnswerPlan();
  AnswerPrepared(1);
  AnswerReady(members_, 1);
  EXPECT_EQ(phase(), "training");
  Join("c");
  EXPECT_EQ(phase(), "changing");
  Tell(ProcessExited{"c", 0, "killed"});
  EXPECT_EQ(phase(), "training");
  Tell(ProcessExited{"b", 0, "killed"});
  EXPECT_EQ(phase(), "recovering");
  Halted("a", Last("a", wire::ToWorker::kHalt)->halt().generation(), 0, 0, false);
  Wait(0.2, {"a"});
  EXPECT_EQ(phase(), "paused");
  EXPECT_THAT(coordinator_.StatusAt(now_).reason(), HasSubstr("1 of at least 2 workers are left"));
  EXPECT_EQ(Count("paused"), 1);
  Join("d");
  ASSERT_TRUE(request_.has_value());
  Tell(ProcessExited{"d", 0, "killed"});
  Wait(0.2, {"a"});
  EXPECT_EQ(phase(), "paused");
  Tell(CancelRequested{"enough"});
  EXPECT_EQ(phase(), "failed");
  EXPECT_EQ(coordinator_.StatusAt(now_).reason(), "enough");
  EXPECT_FALSE(end_->bad_input);
}

TEST_F(CoordinatorTest, WhatAWorkerDoesIsShownByName) {
  Tell(Submitted{job_});
  Hello("a");
  const auto standing = [this] { return coordinator_.StatusAt(now_).workers(0).standing(); };
  EXPECT_EQ(standing(), "profiling");
  From("a", [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  const std::pair<wire::Standing, std::string> names[] = {
      {wire::STANDING_IDLE, "standby"},      {wire::STANDING_TRAINING, "training"},
      {wire::STANDING_STOPPED, "stopped"},   {wire::STANDING_HALTED, "halted"},
      {wire::STANDING_MOVING, "moving"},     {wire::STANDING_READY, "ready"},
      {wire::STANDING_FINISHED, "finished"}, {static_cast<wire::Standing>(99), "unknown"}};
  for (const auto& [number, name] : names) {
    From("a", [number = number](wire::FromWorker& message) {
      message.mutable_heartbeat()->set_standing(number);
      message.mutable_heartbeat()->set_applied_step(17);
    });
    EXPECT_EQ(standing(), name);
  }
  EXPECT_EQ(coordinator_.StatusAt(now_).workers(0).applied_step(), 17);
  Tell(DrainRequested{"a"});
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 0) << "nothing keeps it";
}

// Each of these comes before anybody's lease ends.
TEST_F(CoordinatorTest, TheNextTickIsDueWithWhateverComesFirst) {
  const Duration second = std::chrono::seconds(1);
  EXPECT_EQ(coordinator_.NextDeadline(), std::nullopt) << "nobody is there";
  job_.policy.formation_timeout = second;
  job_.policy.profile_timeout = 2 * second;
  job_.policy.reply_timeout = second / 2;
  job_.policy.move_timeout = second / 4;
  Tell(Submitted{job_});
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + second) << "the formation";
  job_.policy.formation_timeout = 60 * second;
  coordinator_ = Coordinator();
  Tell(Submitted{job_});
  Hello("a");
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + 2 * second) << "the profile";
  From("a", [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + job_.policy.lease);
  Join("b");
  AnswerPlan();
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + second / 2) << "Prepared";
  AnswerPrepared(1);
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + second / 4) << "Ready";
  AnswerReady(members_, 1);
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + job_.policy.lease) << "nothing else is waited for";
  Step(1);
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + second) << "the record of steps";
  From("a", [](wire::FromWorker& message) {
    message.mutable_peer_lost()->set_generation(1);
    message.mutable_peer_lost()->set_peer("b");
  });
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + job_.policy.probe) << "the accused";
  Tell(Disconnected{connections_.at("a")});
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + job_.policy.reconnect_grace);
}

TEST_F(CoordinatorTest, AMeasurementOfLinksIsWaitedForNoLongerThanItsTime) {
  job_.policy.links.transports = {"tcp"};
  job_.policy.links.timeout = std::chrono::seconds(1);
  Tell(Submitted{job_});
  for (const char* name : {"a", "b"}) {
    Hello(name, [](wire::Hello& hello) { hello.set_probe_address("probe"); });
    From(name,
         [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  }
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + std::chrono::seconds(1));
  Tell(CancelRequested{"enough"});
  EXPECT_EQ(coordinator_.NextDeadline(), std::nullopt);
}

// A launcher may tell late of a process whose name another one has by now.
TEST_F(CoordinatorTest, TheEndOfAnotherProcessOfTheSameNameIsNoLoss) {
  Tell(Submitted{job_});
  Hello("a", [](wire::Hello& hello) { hello.set_pid(7); });
  Tell(ProcessExited{"a", 6, "exit code 1"});
  Tell(ProcessExited{"nobody", 7, "exit code 1"});
  EXPECT_EQ(Count("worker_lost"), 0);
  Tell(ProcessExited{"a", 7, "exit code 1"});
  EXPECT_EQ(Count("worker_lost"), 1);
}

TEST_F(CoordinatorTest, AProcessThatEndsBeforeARestartedCoordinatorHeardItIsALoss) {
  Form();
  coordinator_ = Coordinator(stored_, job_, now_);
  Tell(ProcessExited{"b", 4711, "killed"});
  EXPECT_EQ(Count("worker_lost"), 1) << "its process was never told to this coordinator";
}

TEST_F(CoordinatorTest, BeforeAJobWorkersComeAndGoWithoutAWord) {
  Hello("a");
  Hello("b", [](wire::Hello& hello) { hello.set_pid(9); });
  EXPECT_TRUE(sent_["a"].empty()) << "there is no job to be welcomed to";
  Tell(Disconnected{999});  // Of nobody.
  Tell(Disconnected{connections_.at("a")});
  Tell(ProcessExited{"b", 9, "exit code 0"});
  EXPECT_TRUE(sent_["b"].empty()) << "nothing is abandoned";
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 0);
  EXPECT_TRUE(log_.empty());
  Hello("a");
  EXPECT_EQ(Last("a", wire::ToWorker::kRefused), nullptr) << "it may come again";
}

TEST_F(CoordinatorTest, AJobIsSubmittedOnce) {
  Form();
  Job another = job_;
  another.id = "another";
  Tell(Submitted{another});
  EXPECT_EQ(coordinator_.StatusAt(now_).job_id(), "job");
  EXPECT_EQ(Count("job_started"), 1);
}

TEST_F(CoordinatorTest, AfterTheJobANewWorkerMayAskAgainAndOneOfTheJobMayNot) {
  Form();
  Tell(CancelRequested{"by the user"});
  Hello("late");
  ASSERT_NE(Last("late", wire::ToWorker::kRefused), nullptr);
  EXPECT_FALSE(Last("late", wire::ToWorker::kRefused)->refused().permanent());
  Hello("a");
  ASSERT_NE(Last("a", wire::ToWorker::kRefused), nullptr);
  EXPECT_TRUE(Last("a", wire::ToWorker::kRefused)->refused().permanent());
  Hello("stale", [](wire::Hello& hello) { hello.set_generation(1); });
  EXPECT_TRUE(Last("stale", wire::ToWorker::kRefused)->refused().permanent());
}

TEST_F(CoordinatorTest, GenerationsBeginAboveThoseThatTheCheckpointsKnow) {
  job_.used_generation = 7;
  Tell(Submitted{job_});
  EXPECT_EQ(stored_.generation_counter, 7);
  job_.used_generation = 9;
  coordinator_ = Coordinator(stored_, job_, now_);
  Tell(CancelRequested{"by the user"});
  EXPECT_EQ(stored_.generation_counter, 9);
}

TEST_F(CoordinatorTest, AnAccusationOfAnotherGenerationIsNotHeard) {
  Form();
  const auto accuse = [&](int64_t generation, const std::string& peer) {
    From("a", [&](wire::FromWorker& message) {
      message.mutable_peer_lost()->set_generation(generation);
      message.mutable_peer_lost()->set_peer(peer);
    });
  };
  accuse(0, "b");
  accuse(2, "b");
  Tell(Disconnected{connections_.at("b")});
  EXPECT_EQ(Count("worker_lost"), 0) << "its stream has its grace";
  Hello("b", [](wire::Hello& hello) { hello.set_generation(1); });
  accuse(1, "a");  // Itself: it does not know who it was.
  Tell(Disconnected{connections_.at("b")});
  EXPECT_EQ(Count("worker_lost"), 1);
}

TEST_F(CoordinatorTest, AWorkerThatLeavesAtOnceIsLostAndOneThatAsksIsReleased) {
  Form();
  Join("c");
  request_.reset();
  From("c", [](wire::FromWorker& message) {
    message.mutable_leaving()->set_reason("its disk is gone");
    message.mutable_leaving()->set_at_once(true);
  });
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(std::get<std::string>(*log_.back().Find("reason")), "its disk is gone");
  Join("d");
  PlanOutcome worse;
  worse.request_id = request_->id;
  worse.predicted_step_seconds = 9;
  worse.current_step_seconds = 1;
  Tell(Planned{worse});
  sent_.clear();
  From("d", [](wire::FromWorker& message) { message.mutable_leaving()->set_reason("SIGTERM"); });
  Wait(0.2, {"a", "b"});
  ASSERT_NE(Last("d", wire::ToWorker::kRelease), nullptr);
  EXPECT_EQ(Last("d", wire::ToWorker::kRelease)->release().reason(), "SIGTERM");
  EXPECT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(Count("worker_left"), 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 2);
}

TEST_F(CoordinatorTest, WhoHasFinishedWaitsForTheOthersOfItsGeneration) {
  job_.policy.total_steps = 1;
  job_.policy.final_checkpoint = false;
  job_.policy.checkpoint_every = 0;
  Form();
  Step(1);
  const auto finished = [&](const std::string& name, int64_t generation) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_finished()->set_generation(generation);
      message.mutable_finished()->set_step(1);
    });
  };
  finished("a", 1);
  finished("b", 2);
  EXPECT_FALSE(end_.has_value());
  EXPECT_EQ(coordinator_.StatusAt(now_).workers(0).standing(), "finished");
  EXPECT_EQ(coordinator_.StatusAt(now_).workers(1).standing(), "training");
  finished("b", 1);
  ASSERT_TRUE(end_.has_value());
  EXPECT_TRUE(end_->ok);
}

// The checks themselves: what cannot be is found.
TEST_F(CoordinatorTest, BrokenInvariantsAreFound) {
  DurableState broken;
  broken.held = DurableGeneration{.number = 2, .plan = {}, .members = {}};
  broken.generation_counter = 1;
  EXPECT_THAT(Coordinator(broken, job_, now_).CheckInvariants().ToString(),
              HasSubstr("above the counter"));
  broken.generation_counter = 2;
  EXPECT_TRUE(Coordinator(broken, job_, now_).CheckInvariants().ok());
}

// What b alone would be is drift; what all share is none: no plan is better than the one in force.
TEST_F(CoordinatorTest, WhenAllAreSlowerAlikeTheyGoOnAsTheyAre) {
  Form();
  const auto windows = [&](int64_t first) {
    for (int64_t number = first; number < first + 6; ++number) {
      for (const char* name : {"a", "b"}) {
        From(name, [&](wire::FromWorker& message) {
          wire::Heartbeat& heartbeat = *message.mutable_heartbeat();
          heartbeat.set_generation(1);
          heartbeat.set_window(number);
          heartbeat.set_busy_seconds(2);
          heartbeat.set_predicted_busy_seconds(1);
        });
      }
    }
  };
  windows(1);
  ASSERT_TRUE(request_.has_value());
  windows(7);
  PlanOutcome same;
  same.request_id = request_->id;
  same.members = {"a", "b"};
  same.predicted_step_seconds = same.current_step_seconds = 2;
  request_.reset();
  Tell(Planned{same});
  windows(13);
  EXPECT_FALSE(request_.has_value()) << "it was answered just now";
  EXPECT_EQ(Last("a", wire::ToWorker::kPrepare), nullptr);
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
}

// Twice as many as there are come in a moment. The first ones that are measured wait for the
// others.
TEST_F(CoordinatorTest, ManyWhoJoinTogetherAreOneChange) {
  const std::vector<std::string> newcomers = {"c", "d", "e", "f"};
  Form();
  for (const std::string& name : newcomers) {
    Hello(name);
  }
  for (const std::string& name : newcomers) {
    EXPECT_FALSE(request_.has_value()) << name << " is not measured yet";
    From(name,
         [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  }
  ASSERT_TRUE(request_.has_value());
  const int64_t generation = request_->generation;
  AnswerPlan();
  EXPECT_EQ(members_.size(), 6U);
  AnswerPrepared(generation);
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Last(name, wire::ToWorker::kHalt), nullptr) << "they train until it is prepared";
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(3);
    });
  }
  AnswerReady(members_, generation);
  EXPECT_EQ(stored_.held->number, generation);
  EXPECT_EQ(Count("plan"), 2) << "the first one and this";
  EXPECT_FALSE(request_.has_value()) << "nobody is left to take in";
}

// What is left holds its state until somebody comes.
TEST_F(CoordinatorTest, TooFewWaitWithTheirStateForAnother) {
  job_.policy.min_workers = 2;
  Form();
  Step(1);
  Tell(ProcessExited{"b", 0, "killed"});
  Halted("a", 2, 1, 1, false);
  Wait(20, {"a"});
  ASSERT_EQ(coordinator_.StatusAt(now_).phase(), "paused");
  Join("c");
  ASSERT_TRUE(request_.has_value());
  const int64_t generation = request_->generation;
  AnswerPlan();
  AnswerPrepared(generation);
  ASSERT_NE(Last("c", wire::ToWorker::kStart), nullptr);
  const wire::Start& start = Last("c", wire::ToWorker::kStart)->start();
  EXPECT_EQ(start.applied_step(), 1);
  EXPECT_THAT(
      std::vector<std::string>(start.held().workers().begin(), start.held().workers().end()),
      testing::ElementsAre("a"));
  AnswerReady(members_, generation);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  ASSERT_EQ(Count("resumed"), 1);
  EXPECT_EQ(std::get<int64_t>(*Logged("resumed").Find("steps_repeated")), 0);
}

TEST_F(CoordinatorTest, DriftForWhichNoChangePaysIsLeftAloneForAWhile) {
  Form();
  int64_t number = 0;
  const auto windows = [&] {
    for (int i = 0; i < 6; ++i) {
      From("b", [&](wire::FromWorker& message) {
        wire::Heartbeat& heartbeat = *message.mutable_heartbeat();
        heartbeat.set_generation(1);
        heartbeat.set_window(++number);
        heartbeat.set_busy_seconds(3);
        heartbeat.set_predicted_busy_seconds(1);
      });
    }
  };
  windows();
  ASSERT_TRUE(request_.has_value());
  PlanOutcome same;
  same.request_id = request_->id;
  same.members = {"a", "b"};
  same.predicted_step_seconds = same.current_step_seconds = 1;
  request_.reset();
  Tell(Planned{same});
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  windows();
  EXPECT_FALSE(request_.has_value()) << "it was answered just now";
  now_ += job_.policy.drift.cooldown;
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) { message.mutable_heartbeat(); });
  }
  EXPECT_TRUE(request_.has_value());
}

}  // namespace
}  // namespace heddle::elastic
