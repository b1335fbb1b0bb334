// Where a recovery takes the state from, and what makes snapshots in memory possible.
#include "tests/elastic/control/source/source_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(SourceTest, MembersLearnWhoKeepsTheirParts) {
  job_.policy.initial_workers = 4;
  job_.failure_domains = {{"a", "rack-3"}, {"d", "rack-2"}};
  Tell(Submitted{job_});
  const std::map<std::string, std::string> said = {
      {"a", "rack-1"}, {"b", "rack-1"}, {"c", "rack-2"}};
  for (const char* name : {"a", "b", "c", "d"}) {
    Hello(name, [&](wire::Hello& hello) {
      if (said.count(name) > 0) {
        hello.set_failure_domain(said.at(name));
      }
    });
    From(name,
         [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  }
  AnswerPlan(true);
  const wire::Prepare& prepare = Last("a", wire::ToWorker::kPrepare)->prepare();
  ASSERT_EQ(prepare.holders_size(), 4);
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(prepare.holders(rank).ranks_size(), 1);
    EXPECT_NE(prepare.holders(rank).ranks(0) / 2, rank / 2) << "in the same rack";
  }
  EXPECT_EQ(coordinator_.StatusAt(now_).workers(3).failure_domain(), "rack-2");
  EXPECT_EQ(stored_.workers.at("d").failure_domain, "rack-2") << "as the job's file has it";
  EXPECT_EQ(stored_.workers.at("a").failure_domain, "rack-1") << "its own word comes first";
}

TEST_F(SourceTest, WithoutSnapshotsThereAreNoHolders) {
  job_.policy.replicate_every = 0;
  Tell(Submitted{job_});
  for (const char* name : {"a", "b", "c"}) {
    Join(name);
  }
  AnswerPlan(true);
  EXPECT_EQ(Last("a", wire::ToWorker::kPrepare)->prepare().holders_size(), 0);
  AnswerPrepared(1);
  AnswerReady(members_, 1);
  EXPECT_THAT(stored_.snapshots, IsEmpty());
}

TEST_F(SourceTest, AFailureDomainThatIsNoNameIsRefused) {
  Tell(Submitted{job_});
  Hello("a", [](wire::Hello& hello) { hello.set_failure_domain("rack 1"); });
  ASSERT_NE(Last("a", wire::ToWorker::kRefused), nullptr);
  EXPECT_TRUE(Last("a", wire::ToWorker::kRefused)->refused().permanent());
  Hello("b", [](wire::Hello& hello) { hello.set_failure_domain(std::string(65, 'x')); });
  EXPECT_THAT(Last("b", wire::ToWorker::kRefused)->refused().reason(), HasSubstr("64"));
}

TEST_F(SourceTest, ASnapshotIsTakenBeforeAnOlderCheckpoint) {
  FormThree();
  StepTo(1, 10);
  CommitAt(10);
  StepTo(11, 14);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 14, {{1, 8, {0, 2}}, {1, 12, {0, 2}}});
  HaltedWith("b", 2, 14, {{1, 8, {0, 1}}, {1, 12, {0, 1}}});
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(Chosen(), "replicas");
  ASSERT_EQ(Candidates().size(), 2U);
  EXPECT_EQ(Candidates()[0]["step"], 12);
  EXPECT_EQ(Candidates()[1]["source"], "checkpoint");
  EXPECT_GT(Candidates()[1]["predicted_seconds"], Candidates()[0]["predicted_seconds"]);
  EXPECT_FALSE(request_->candidates[0].holds_state);
  AnswerPlan(true);
  AnswerPrepared(3);
  const wire::Start& start = Started("a");
  ASSERT_TRUE(start.has_replicas());
  EXPECT_EQ(start.applied_step(), 12);
  EXPECT_FALSE(start.has_settle());
  EXPECT_EQ(start.replicas().generation(), 1);
  EXPECT_EQ(start.replicas().plan_json(), "plan 1");
  ASSERT_EQ(start.replicas().holders_size(), 2);
  EXPECT_EQ(start.replicas().holders(0).worker(), "a");
  EXPECT_THAT(start.replicas().holders(0).owners(), ElementsAre(0, 2));
  EXPECT_THAT(start.replicas().holders(1).owners(), ElementsAre(0, 1));
  EXPECT_EQ(stored_.known_step, 14) << "nobody has gone back yet";
  AnswerReady({"a", "b"}, 3);
  EXPECT_EQ(std::get<int64_t>(*LastOf("resumed").Find("steps_repeated")), 2);
  EXPECT_EQ(stored_.known_step, 12);
  Step(13);
  EXPECT_EQ(std::get<int64_t>(*LastOf("step").Find("step")), 13);
}

TEST_F(SourceTest, AHolderOutsideThePlanTakesPartInTheMove) {
  FormThree();
  StepTo(1, 5);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 5, {{1, 4, {0, 2}}});
  HaltedWith("b", 2, 5, {{1, 4, {0, 1}}});
  Wait(0.2, {"a", "b"});
  PlanOutcome outcome;
  outcome.request_id = request_->id;
  outcome.plan_json = "plan of a alone";
  outcome.members = {"a"};
  outcome.program_hashes = {0};
  outcome.parameters = {{0, 1, 2}};
  outcome.parameter_count = 3;
  TakePlan(outcome);
  members_ = {"a"};
  AnswerPrepared(3);
  From("b", [](wire::FromWorker& message) { message.mutable_prepared()->set_generation(3); });
  ASSERT_TRUE(Started("b").has_replicas());
  EXPECT_EQ(Started("b").move_members_size(), 2);
  EXPECT_EQ(Started("b").move_generation(), 2);
}

TEST_F(SourceTest, SurvivorsThatHoldEverythingComeFirst) {
  FormThree(/*split=*/false);
  StepTo(1, 9);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 9, {{1, 8, {0, 2}}});
  HaltedWith("b", 2, 9, {{1, 8, {0, 1}}});
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(Chosen(), "live");
  AnswerPlan();
  AnswerPrepared(3);
  EXPECT_TRUE(Started("a").has_held());
  EXPECT_EQ(Started("a").applied_step(), 9);
}

TEST_F(SourceTest, WithoutAPartTheSnapshotBeforeCounts) {
  FormThree();
  StepTo(1, 13);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 13, {{1, 8, {0, 2}}, {1, 12, {0}}});  // c's part of 12 had not come.
  HaltedWith("b", 2, 13, {{1, 8, {0, 1}}, {1, 12, {0, 1}}});
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(Chosen(), "replicas");
  EXPECT_EQ(Candidates()[0]["step"], 8);
}

TEST_F(SourceTest, AnOwnerLostWithItsHolderGoesBackToTheCheckpoint) {
  FormThree();
  StepTo(1, 10);
  CommitAt(10);
  StepTo(11, 14);
  Tell(ProcessExited{"c", 0, "killed"});
  Tell(ProcessExited{"a", 0, "killed"});
  HaltedWith("b", 2, 14, {{1, 12, {0, 1}}});
  Wait(0.2, {"b"});
  EXPECT_EQ(Chosen(), "checkpoint");
  EXPECT_EQ(Candidates().size(), 1U);
  AnswerPlan(true);
  AnswerPrepared(3);
  EXPECT_EQ(Started("b").checkpoint_step(), 10);
}

TEST_F(SourceTest, ARefusedSnapshotIsNotOfferedAgain) {
  FormThree();
  StepTo(1, 10);
  CommitAt(10);
  StepTo(11, 14);
  Tell(ProcessExited{"c", 0, "killed"});
  const auto halt = [&](int64_t fence) {
    HaltedWith("a", fence, 14, {{1, 12, {0, 2}}});
    HaltedWith("b", fence, 14, {{1, 12, {0, 1}}});
    Wait(0.2, {"a", "b"});
  };
  halt(2);
  AnswerPlan(true);
  AnswerPrepared(3);
  Refuse("b", 3);
  EXPECT_EQ(Count("replica_refused"), 1);
  EXPECT_EQ(std::get<int64_t>(*LastOf("replica_refused").Find("generation")), 1);
  halt(4);
  EXPECT_EQ(Chosen(), "checkpoint");
  AnswerPlan(true);
  AnswerPrepared(5);
  EXPECT_EQ(Started("a").checkpoint_step(), 10);
  AnswerReady({"a", "b"}, 5);
  EXPECT_EQ(std::get<int64_t>(*LastOf("resumed").Find("steps_repeated")), 4);
}

TEST_F(SourceTest, ARefusedCheckpointLeavesTheSnapshot) {
  FormThree();
  StepTo(1, 10);
  CommitAt(10);
  StepTo(11, 11);
  Tell(ProcessExited{"c", 0, "killed"});
  const auto halt = [&](int64_t fence) {
    HaltedWith("a", fence, 11, {{1, 8, {0, 2}}});
    HaltedWith("b", fence, 11, {{1, 8, {0, 1}}});
    Wait(0.2, {"a", "b"});
  };
  halt(2);
  EXPECT_EQ(Chosen(), "checkpoint");
  AnswerPlan(true);
  AnswerPrepared(3);
  Refuse("b", 3);
  EXPECT_EQ(Count("checkpoint_refused"), 1);
  halt(4);
  EXPECT_EQ(Chosen(), "replicas");
  AnswerPlan(true);
  AnswerPrepared(5);
  EXPECT_EQ(Started("a").applied_step(), 8);
  Refuse("a", 5);
  HaltedWith("a", 6, 11, {{1, 8, {0, 2}}});
  HaltedWith("b", 6, 11, {{1, 8, {0, 1}}});
  Wait(0.2, {"a", "b"});
  ASSERT_TRUE(end_.has_value()) << "to begin anew would lose the run without a word";
  EXPECT_THAT(end_->reason, HasSubstr("no checkpoint is sound: a checksum differs"));
}

TEST_F(SourceTest, ARestartedCoordinatorKnowsTheSnapshots) {
  FormThree();
  StepTo(1, 10);
  CommitAt(10);
  StepTo(11, 13);
  Wait(1.2, {"a", "b", "c"});
  job_.checkpoints = {10};
  coordinator_ = Coordinator(stored_, job_, now_);
  sent_.clear();
  for (const char* name : {"a", "b", "c"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_applied_step(13);
      hello.set_standing(wire::STANDING_TRAINING);
      hello.set_standing_generation(1);
    });
  }
  ASSERT_EQ(Count("coordinator_restarted"), 1);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 13, {{1, 12, {0, 2}}});
  HaltedWith("b", 2, 13, {{1, 12, {0, 1}}});
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(Chosen(), "replicas");
  AnswerPlan(true);
  AnswerPrepared(3);
  EXPECT_EQ(Started("a").replicas().plan_json(), "plan 1");
}

// The job went back to step 8: what some worker still holds of step 12 is of another past.
TEST_F(SourceTest, SnapshotsOfStepsThatWereGivenUpAreVoid) {
  FormThree();
  StepTo(1, 13);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 13, {{1, 8, {0, 2}}, {1, 12, {0}}});
  HaltedWith("b", 2, 13, {{1, 8, {0, 1}}, {1, 12, {0, 1}}});
  Wait(0.2, {"a", "b"});
  AnswerPlan(true);
  AnswerPrepared(3);
  AnswerReady({"a", "b"}, 3);
  EXPECT_EQ(stored_.snapshots.at(1).last_step, 8);
  StepTo(9, 13);
  Tell(ProcessExited{"b", 0, "killed"});
  From("a", [](wire::FromWorker& message) {
    wire::Halted& halted = *message.mutable_halted();
    halted.set_generation(4);
    halted.set_held_generation(3);
    halted.set_applied_step(13);
    halted.set_norm_step(13);
    for (const auto& [generation, step] : {std::pair(1, 8), std::pair(1, 12), std::pair(7, 12)}) {
      wire::Halted::Replicas& replicas = *halted.add_replicas();
      replicas.set_generation(generation);
      replicas.set_step(step);
      for (const int32_t owner : {0, 1, 2}) {
        replicas.add_owners(owner);
      }
    }
  });
  Wait(0.2, {"a"});
  EXPECT_EQ(Chosen(), "replicas");
  EXPECT_EQ(std::get<int64_t>(*LastOf("recovery_source").Find("step")), 8);
}

TEST_F(SourceTest, AStepWhoseRecordNobodyKnowsIsNotGoneOnFrom) {
  FormThree();
  StepTo(1, 11);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 11, {{1, 12, {0, 1, 2}}, {1, 8, {0, 1, 2}}});
  HaltedWith("b", 2, 11, {});
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(std::get<int64_t>(*LastOf("recovery_source").Find("step")), 8);
}

TEST_F(SourceTest, SlowStorageMakesAnOlderSnapshotWorthMore) {
  for (const auto& [raw_bytes, expected] :
       {std::pair<int64_t, std::string>(1000, "checkpoint"),
        std::pair<int64_t, std::string>(1000000000000, "replicas")}) {
    coordinator_ = Coordinator();
    request_.reset();
    FormThree();
    StepTo(1, 10);
    CommitAt(10, raw_bytes);
    StepTo(11, 11);
    Tell(ProcessExited{"c", 0, "killed"});
    HaltedWith("a", 2, 11, {{1, 8, {0, 2}}});
    HaltedWith("b", 2, 11, {{1, 8, {0, 1}}});
    Wait(0.2, {"a", "b"});
    EXPECT_EQ(Chosen(), expected);
  }
}

// 2 GB were moved from memory at 1 MB/s: the next time storage, as it is assumed, is quicker.
TEST_F(SourceTest, WhatAMoveTookCountsForTheNext) {
  FormThree();
  StepTo(1, 10);
  CommitAt(10, 2000000000);
  StepTo(11, 13);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 13, {{1, 12, {0, 2}}});
  HaltedWith("b", 2, 13, {{1, 12, {0, 1}}});
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(Chosen(), "replicas");
  AnswerPlan(true);
  AnswerPrepared(3);
  AnswerReadyWith({"a", "b"}, 3, 1000000000, 2000);
  Tell(ProcessExited{"b", 0, "killed"});
  HaltedWith("a", 4, 12, {{1, 12, {0, 1, 2}}});
  Wait(0.2, {"a"});
  EXPECT_EQ(Chosen(), "checkpoint");
  EXPECT_NEAR(Candidates()[1]["predicted_seconds"].get<double>(), 2000, 1);
}

// A part is 100 bytes in the mean; three of them are the state.
TEST_F(SourceTest, TheStatesSizeIsKnownFromItsParts) {
  job_.policy.recovery.replica_bytes_per_second = 10;
  FormThree();
  StepTo(1, 8);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 8, {{1, 8, {0, 2}, 200}});
  HaltedWith("b", 2, 8, {{1, 8, {0, 1}, 200}});
  Wait(0.2, {"a", "b"});
  for (const auto& candidate : Candidates()) {
    if (candidate["source"] == "replicas") {
      EXPECT_EQ(candidate["predicted_seconds"], 30);
    }
  }
  EXPECT_EQ(Candidates().size(), 2U);
}

TEST_F(SourceTest, ALossDuringTheMoveBeginsAnew) {
  FormThree();
  StepTo(1, 13);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 13, {{1, 12, {0, 2}}});
  HaltedWith("b", 2, 13, {{1, 12, {0, 1}}});
  Wait(0.2, {"a", "b"});
  AnswerPlan(true);
  AnswerPrepared(3);
  Tell(ProcessExited{"b", 0, "killed"});
  EXPECT_EQ(Last("a", wire::ToWorker::kHalt)->halt().known_step(), 13);
  HaltedWith("a", 4, 13, {{1, 12, {0, 2}}});
  Wait(0.2, {"a"});
  EXPECT_EQ(Chosen(), "initial") << "b's part is lost, and there is no checkpoint";
}

}  // namespace
}  // namespace heddle::elastic
