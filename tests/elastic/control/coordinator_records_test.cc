// What workers say of steps, losses and checkpoints counts when it is of the history that does.
#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CoordinatorRecordsTest : public CoordinatorTest {
 protected:
  void Validate(const std::string& name, int64_t step, int64_t generation) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_validation()->set_step(step);
      message.mutable_validation()->set_generation(generation);
      message.mutable_validation()->set_loss(0.5);
    });
  }
  std::vector<int64_t> Checkpoints() const {
    const wire::JobStatus status = coordinator_.StatusAt(now_);
    return {status.checkpoint_steps().begin(), status.checkpoint_steps().end()};
  }
  // a and b write one.
  void Checkpoint(int64_t step, std::vector<int64_t> pruned = {}) {
    for (const char* name : {"a", "b"}) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_checkpoint_part()->set_step(step);
        message.mutable_checkpoint_part()->set_generation(1);
        message.mutable_checkpoint_part()->set_part(name);
      });
    }
    Tell(CheckpointCommitted{
        .step = step, .generation = 1, .status = Status::Ok(), .pruned = std::move(pruned)});
  }
};

void Reads(wire::FromWorker& message, uint64_t data) {
  message.mutable_profiled()->set_profile_json("{}");
  message.mutable_profiled()->set_data(data);
}

TEST_F(CoordinatorRecordsTest, WhoReadsOtherDataThanTheJobIsGivenUpWithBothValues) {
  Tell(Submitted{job_});
  for (const auto& [name, data] : {std::pair("a", 0xA1U), {"b", 0xB2U}, {"c", 0xA1U}}) {
    Hello(name);
    From(name, [&](wire::FromWorker& message) { Reads(message, data); });
  }
  const std::string reason =
      "its data are not the job's: they have the fingerprint 00000000000000b2 there, and the job's "
      "00000000000000a1";
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(std::get<std::string>(*Logged("worker_lost").Find("worker")), "b");
  EXPECT_EQ(std::get<std::string>(*Logged("worker_lost").Find("reason")), reason);
  ASSERT_NE(Last("b", wire::ToWorker::kAbandon), nullptr) << "it ends with 1";
  EXPECT_EQ(Last("b", wire::ToWorker::kAbandon)->abandon().reason(), reason);
  AnswerPlan();
  EXPECT_THAT(members_, ElementsAre("a", "c"));
  EXPECT_EQ(stored_.data, 0xA1U) << "before anybody hears of a generation";
}

TEST_F(CoordinatorRecordsTest, AJobThatGoesOnFromACheckpointHasItsData) {
  job_.data = 0xC3;
  Tell(Submitted{job_});
  Hello("a");
  From("a", [](wire::FromWorker& message) { Reads(message, 0xA1); });
  EXPECT_EQ(Count("worker_lost"), 1);
  Hello("b");
  From("b", [](wire::FromWorker& message) { Reads(message, 0xC3); });
  EXPECT_EQ(Count("worker_lost"), 1);
}

TEST_F(CoordinatorRecordsTest, ARestartedCoordinatorKnowsTheDataAndACheckpointGetsThem) {
  Tell(Submitted{job_});
  for (const char* name : {"a", "b"}) {
    Hello(name);
    From(name, [](wire::FromWorker& message) { Reads(message, 0xA1); });
  }
  AnswerPlan();
  AnswerPrepared(1);
  AnswerReady(members_, 1);
  Step(1);
  Checkpoint(1);
  ASSERT_EQ(commits_.size(), 1U);
  EXPECT_EQ(commits_[0].facts.data, 0xA1U);
  coordinator_ = Coordinator(stored_, job_, now_);
  for (const char* name : {"a", "b"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_standing(wire::STANDING_TRAINING);
      hello.set_standing_generation(1);
    });
  }
  Hello("c");
  From("c", [](wire::FromWorker& message) { Reads(message, 0xB2); });
  EXPECT_EQ(std::get<std::string>(*Logged("worker_lost").Find("worker")), "c");
}

TEST_F(CoordinatorRecordsTest, RecordsOfAnotherGenerationAreNotTaken) {
  Form();
  Step(1, "a", 0);
  Step(1, "a", 2);
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 0);
  Step(1, "a", 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 1);
}

// A member of a generation that was given up: it waits for its part in another, and repeats what it
// knows whenever it comes back.
TEST_F(CoordinatorRecordsTest, RecordsOfAWorkerThatIsNoMemberAreNotTaken) {
  Form();
  Join("c");
  Step(1, "c", 1);
  Validate("c", 1, 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 0);
  EXPECT_EQ(Count("validation"), 0);
}

// Its parts were complete before the loss, and the one before it is pruned.
TEST_F(CoordinatorRecordsTest, ACheckpointThatIsCompletedDuringARecoveryIsGoneOnFrom) {
  Form(/*split=*/true);
  for (int64_t step = 1; step <= 12; ++step) {
    Step(step);
  }
  Checkpoint(5);
  for (const char* name : {"a", "b"}) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_checkpoint_part()->set_step(10);
      message.mutable_checkpoint_part()->set_generation(1);
    });
  }
  ASSERT_EQ(commits_.size(), 2U);
  Tell(ProcessExited{"b", 0, "killed"});
  Halted("a", 2, 12, 12, false);
  Wait(0.2, {"a"});
  EXPECT_EQ(std::get<int64_t>(*Logged("recovery_source").Find("step")), 5);
  Tell(CheckpointCommitted{.step = 10, .generation = 1, .status = Status::Ok(), .pruned = {5}});
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

TEST_F(CoordinatorRecordsTest, ALossOfAnotherGenerationIsNotTaken) {
  Form();
  Validate("a", 1, 0);
  Validate("a", 1, 2);
  EXPECT_EQ(Count("validation"), 0);
  Validate("a", 1, 1);
  Validate("b", 1, 1);
  EXPECT_EQ(Count("validation"), 1);
}

// Its predecessor has logged what came before; what it did not, the members say again.
TEST_F(CoordinatorRecordsTest, ARestartedCoordinatorTakesWhatMembersRepeatOfTheGenerationInForce) {
  Form();
  Step(1);
  const DurableState stored = stored_;
  Step(2);
  coordinator_ = Coordinator(stored, job_, now_);
  for (const char* name : {"a", "b"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_standing(wire::STANDING_TRAINING);
      hello.set_standing_generation(1);
    });
  }
  Step(1, "b");
  Step(2, "b");
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 2);
}

// The shell cannot plan with it, and says why.
TEST_F(CoordinatorRecordsTest, AWorkerWhoseProfileIsOfNoUseIsGivenUpAlone) {
  Form();
  Hello("c");
  From("c", [](wire::FromWorker& message) {
    message.mutable_profiled()->set_error("flops_per_second is 0");
  });
  ASSERT_NE(Last("c", wire::ToWorker::kAbandon), nullptr);
  EXPECT_THAT(Last("c", wire::ToWorker::kAbandon)->abandon().reason(),
              testing::HasSubstr("its profile is of no use: flops_per_second is 0"));
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 2);
  Hello("d");
  From("d", [](wire::FromWorker& message) { message.mutable_profiled(); });
  EXPECT_NE(Last("d", wire::ToWorker::kAbandon), nullptr) << "an empty one is of no use either";
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
}

TEST_F(CoordinatorRecordsTest, AsManyRecordsAsAWorkerKeepsAreTaken) {
  job_.policy.total_steps = 100'000;
  Form();
  From("a", [&](wire::FromWorker& message) {
    for (int64_t step = 1; step <= 60'000; ++step) {
      wire::StepRecord& record = *message.mutable_step_done()->add_records();
      record.set_step(step);
      record.set_generation(1);
    }
  });
  EXPECT_EQ(coordinator_.StatusAt(now_).step(), 60'000);
}

TEST_F(CoordinatorRecordsTest, PrunedCheckpointsAreForgotten) {
  Form();
  Checkpoint(10);
  Checkpoint(20);
  EXPECT_THAT(Checkpoints(), ElementsAre(10, 20));
  Checkpoint(30, {10});
  EXPECT_THAT(Checkpoints(), ElementsAre(20, 30));
  EXPECT_THAT(stored_.checkpoints, ElementsAre(20, 30));
  Tell(CheckpointsPruned{{20}});
  EXPECT_THAT(Checkpoints(), ElementsAre(30));
}

TEST_F(CoordinatorRecordsTest, ARestartedCoordinatorKnowsWhichCheckpointsWereGivenUp) {
  Form();
  Checkpoint(10);
  DurableState stored = stored_;
  stored.given_up_checkpoints = {20, 30};
  job_.checkpoints = {10, 20};
  coordinator_ = Coordinator(stored, job_, now_);
  EXPECT_THAT(Checkpoints(), ElementsAre(10));
  Tell(CancelRequested{"enough"});
  EXPECT_THAT(stored_.given_up_checkpoints, ElementsAre(20)) << "the other is gone";
}

}  // namespace
}  // namespace heddle::elastic
