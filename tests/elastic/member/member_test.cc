// The worker's side: what it does for each command, and what it says again after a reconnect.
#include "elastic/member/member.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

class MemberTest : public testing::Test {
 protected:
  MemberTest() : member_(Identity(), MemberOptions(), now_) {}

  static MemberIdentity Identity() {
    MemberIdentity identity;
    identity.name = "a";
    identity.incarnation = std::string(16, 'a');
    return identity;
  }
  void Tell(const MemberEvent& event) {
    for (MemberAction& action : member_.Handle(event, now_)) {
      actions_.push_back(std::move(action));
    }
  }
  template <typename Fill>
  void Command(Fill fill) {
    FromCoordinator event;
    fill(event.message);
    Tell(event);
  }
  void Welcome(bool again, int64_t known_step = 0) {
    Command([&](wire::ToWorker& message) {
      wire::Welcome& welcome = *message.mutable_welcome();
      welcome.set_name("a");
      welcome.set_job_id("job");
      welcome.set_again(again);
      welcome.set_known_step(known_step);
      welcome.set_heartbeat_seconds(0.2);
      welcome.set_coordinator_wait_seconds(10);
    });
  }
  // To the middle of training in generation 1, step 5 applied.
  void Train() {
    Tell(StreamUp());
    Welcome(false);
    Tell(JobApplied{Status::Ok()});
    Start(1, 0);
    Command([](wire::ToWorker& message) { message.mutable_go()->set_generation(1); });
    for (int64_t step = 1; step <= 5; ++step) {
      StepApplied applied;
      applied.record.set_step(step);
      applied.record.set_gradient_norm(0.5);
      Tell(applied);
    }
    actions_.clear();
  }
  // The exit code that it ends with; none: it goes on.
  std::optional<int> Code() const {
    for (const MemberAction& action : actions_) {
      if (const auto* exit = std::get_if<ExitWorker>(&action)) {
        return exit->code;
      }
    }
    return std::nullopt;
  }
  void Start(int64_t generation, int64_t applied_step) {
    Prepare(generation);
    Command([&](wire::ToWorker& message) {
      message.mutable_start()->set_generation(generation);
      message.mutable_start()->set_applied_step(applied_step);
    });
    StateMoved moved;
    moved.generation = generation;
    Tell(moved);
  }
  void Prepare(int64_t generation) {
    Command([&](wire::ToWorker& message) {
      message.mutable_prepare()->set_generation(generation);
      message.mutable_prepare()->add_members()->set_name("a");
    });
    Tell(PlanLowered{generation, Status::Ok(), 1});
  }
  void Halt(int64_t fence) {
    Command([&](wire::ToWorker& message) { message.mutable_halt()->set_generation(fence); });
  }
  void FailStep(std::optional<wire::StepRecord> record = std::nullopt) {
    RunEnded ended;
    ended.generation = 1;
    ended.applied_step = 5;
    ended.status = UnavailableError("lost b");
    ended.peer = "b";
    ended.voted = true;
    ended.voted_record = std::move(record);
    Tell(ended);
  }

  template <typename T>
  const T* Action() const {
    for (const MemberAction& action : actions_) {
      if (const T* found = std::get_if<T>(&action)) {
        return found;
      }
    }
    return nullptr;
  }
  const wire::FromWorker* Said(wire::FromWorker::KindCase kind) const {
    for (const MemberAction& action : actions_) {
      const auto* send = std::get_if<SendToCoordinator>(&action);
      if (send != nullptr && send->message.kind_case() == kind) {
        return &send->message;
      }
    }
    return nullptr;
  }

  Time now_{std::chrono::seconds(50)};
  Member member_;
  std::vector<MemberAction> actions_;
};

TEST_F(MemberTest, RankZeroReportsItsSteps) {
  Train();
  StepApplied applied;
  applied.record.set_step(6);
  Tell(applied);
  ASSERT_NE(Said(wire::FromWorker::kStepDone), nullptr);
  EXPECT_EQ(Said(wire::FromWorker::kStepDone)->step_done().records(0).step(), 6);
}

TEST_F(MemberTest, HaltAbortsAtOnceAndAnswersOnceTheRunHasEnded) {
  Train();
  Halt(2);
  ASSERT_NE(Action<AbortBelow>(), nullptr);
  EXPECT_EQ(Action<AbortBelow>()->generation, 2);
  EXPECT_EQ(Said(wire::FromWorker::kHalted), nullptr);
  wire::StepRecord record;
  record.set_step(6);
  record.set_gradient_norm(0.75);
  FailStep(record);
  ASSERT_NE(Said(wire::FromWorker::kHalted), nullptr);
  const wire::Halted& halted = Said(wire::FromWorker::kHalted)->halted();
  EXPECT_EQ(halted.held_generation(), 1);
  EXPECT_EQ(halted.applied_step(), 5);
  EXPECT_EQ(halted.norm_step(), 6);
  EXPECT_EQ(halted.norm(), 0.75);
  EXPECT_TRUE(halted.voted());
  EXPECT_EQ(halted.records_size(), 6);
}

TEST_F(MemberTest, SettlesOnlyTheStepThatItLacks) {
  Train();
  Halt(2);
  FailStep();
  Prepare(3);
  actions_.clear();
  Command([](wire::ToWorker& message) {
    wire::Start& start = *message.mutable_start();
    start.set_generation(3);
    start.set_applied_step(6);
    start.mutable_settle()->set_step(6);
    start.mutable_settle()->set_norm(0.75);
    start.mutable_held()->set_generation(1);
    start.mutable_held()->add_workers("a");
  });
  ASSERT_NE(Action<SettleStep>(), nullptr);
  EXPECT_EQ(Action<SettleStep>()->norm, 0.75);
  ASSERT_NE(Action<MoveState>(), nullptr);
  EXPECT_EQ(member_.applied_step(), 6);

  // The attempt fails and is made again: the step is not applied twice.
  Halt(4);
  Tell(StateMoved{3, AbortedError("fenced"), "", {}, 0});
  Prepare(5);
  actions_.clear();
  Command([](wire::ToWorker& message) {
    wire::Start& start = *message.mutable_start();
    start.set_generation(5);
    start.set_applied_step(6);
    start.mutable_settle()->set_step(6);
    start.mutable_held()->set_generation(1);
    start.mutable_held()->add_workers("a");
  });
  EXPECT_EQ(Action<SettleStep>(), nullptr);
  EXPECT_NE(Action<MoveState>(), nullptr);
}

TEST_F(MemberTest, StateThatMovedWithoutAGoIsAdoptedWhenItCounts) {
  Train();
  Halt(2);
  FailStep();
  Start(3, 5);
  Halt(4);
  actions_.clear();
  Halt(4);
  ASSERT_NE(Said(wire::FromWorker::kHalted), nullptr);
  EXPECT_EQ(Said(wire::FromWorker::kHalted)->halted().held_generation(), 1);
  EXPECT_EQ(Said(wire::FromWorker::kHalted)->halted().staged_generation(), 3);
  Prepare(5);
  Command([](wire::ToWorker& message) {
    message.mutable_start()->set_generation(5);
    message.mutable_start()->set_applied_step(5);
    message.mutable_start()->mutable_held()->set_generation(3);
  });
  ASSERT_NE(Action<AdoptState>(), nullptr);
  EXPECT_EQ(Action<AdoptState>()->generation, 3);
  EXPECT_EQ(member_.held_generation(), 3);
}

TEST_F(MemberTest, TellsWhichSnapshotsItHoldsAndForgetsThoseOfAnotherHistory) {
  const auto snapshot = [](int64_t step, const std::vector<int>& owners) {
    wire::Halted::Replicas held;
    held.set_generation(1);
    held.set_step(step);
    held.mutable_owners()->Add(owners.begin(), owners.end());
    return held;
  };
  const auto steps_announced = [this](int64_t fence) {
    actions_.clear();
    Halt(fence);
    FailStep();
    const wire::FromWorker* said = Said(wire::FromWorker::kHalted);
    std::vector<int64_t> steps;
    if (said != nullptr) {
      for (const auto& held : said->halted().replicas()) {
        steps.push_back(held.step());
      }
    }
    return steps;
  };
  Train();
  Tell(SnapshotsHeld{{snapshot(3, {0, 1})}});
  Tell(SnapshotsHeld{{snapshot(4, {0, 1}), snapshot(5, {0})}});
  EXPECT_THAT(steps_announced(2), testing::ElementsAre(4, 5));
  EXPECT_THAT(Said(wire::FromWorker::kHalted)->halted().replicas(0).owners(),
              testing::ElementsAre(0, 1));
  Start(3, 4);  // From the snapshot of step 4: step 5 will be run again.
  EXPECT_THAT(steps_announced(4), testing::ElementsAre(4, 5)) << "that generation did not begin";
  Start(5, 4);
  Command([](wire::ToWorker& message) { message.mutable_go()->set_generation(5); });
  RunEnded ended;
  ended.generation = 5;
  ended.applied_step = 4;
  ended.status = AbortedError("fenced");
  actions_.clear();
  Halt(6);
  Tell(ended);
  ASSERT_NE(Said(wire::FromWorker::kHalted), nullptr);
  EXPECT_EQ(Said(wire::FromWorker::kHalted)->halted().replicas_size(), 1);
}

TEST_F(MemberTest, AShardThatCannotBeReadIsReportedLikeACheckpoint) {
  for (const bool replicas : {true, false}) {
    MemberTest::Train();
    Halt(2);
    FailStep();
    Prepare(3);
    actions_.clear();
    Command([&](wire::ToWorker& message) {
      message.mutable_start()->set_generation(3);
      if (replicas) {
        message.mutable_start()->mutable_replicas()->set_generation(1);
      } else {
        message.mutable_start()->set_checkpoint_step(0);
      }
    });
    StateMoved moved;
    moved.generation = 3;
    moved.status = DataLossError("a chunk's hash");
    Tell(moved);
    ASSERT_NE(Said(wire::FromWorker::kReady), nullptr);
    EXPECT_TRUE(Said(wire::FromWorker::kReady)->ready().source_unreadable());
    member_ = Member(Identity(), MemberOptions(), now_);
  }
}

TEST_F(MemberTest, StaleCommandsChangeNothing) {
  Train();
  Halt(4);
  FailStep();
  actions_.clear();
  Command([](wire::ToWorker& message) { message.mutable_prepare()->set_generation(3); });
  Command([](wire::ToWorker& message) { message.mutable_start()->set_generation(3); });
  Command([](wire::ToWorker& message) { message.mutable_go()->set_generation(3); });
  Command([](wire::ToWorker& message) { message.mutable_stop()->set_generation(1); });
  Halt(2);
  EXPECT_TRUE(actions_.empty());
}

TEST_F(MemberTest, MeasuresLinksWhileItTrainsAndOnlyAsAskedLast) {
  Train();
  const auto ask = [this](int64_t request) {
    actions_.clear();
    Command(
        [&](wire::ToWorker& message) { message.mutable_measure_links()->set_request(request); });
  };
  const auto answer = [this](int64_t request) {
    LinksProbed probed;
    probed.answer.set_request(request);
    actions_.clear();
    Tell(probed);
  };
  ask(16);
  ASSERT_NE(Action<ProbeLinks>(), nullptr);
  EXPECT_EQ(Action<ProbeLinks>()->request.request(), 16);
  ask(16);  // It came twice.
  EXPECT_EQ(Action<ProbeLinks>(), nullptr);
  ask(24);
  EXPECT_NE(Action<ProbeLinks>(), nullptr);
  answer(16);
  EXPECT_EQ(Said(wire::FromWorker::kLinksMeasured), nullptr);
  answer(24);
  ASSERT_NE(Said(wire::FromWorker::kLinksMeasured), nullptr);
  ask(24);
  EXPECT_EQ(Action<ProbeLinks>(), nullptr);
  EXPECT_NE(Said(wire::FromWorker::kLinksMeasured), nullptr);
  ask(16);
  EXPECT_TRUE(actions_.empty());
  EXPECT_EQ(member_.standing(), wire::STANDING_TRAINING);
}

TEST_F(MemberTest, TrainsOnWithoutACoordinatorAndTellsWhatItMissed) {
  Train();
  Tell(StreamDown{"gone"});
  now_ += std::chrono::hours(1);
  Tell(MemberTicked());
  EXPECT_EQ(Action<ExitWorker>(), nullptr);
  StepApplied applied;
  applied.record.set_step(6);
  Tell(applied);
  EXPECT_EQ(Said(wire::FromWorker::kStepDone), nullptr);
  Tell(StreamUp());
  ASSERT_NE(Said(wire::FromWorker::kHello), nullptr);
  EXPECT_EQ(Said(wire::FromWorker::kHello)->hello().generation(), 1);
  EXPECT_EQ(Said(wire::FromWorker::kHello)->hello().applied_step(), 6);
  Welcome(true, 4);
  ASSERT_NE(Said(wire::FromWorker::kStepDone), nullptr);
  EXPECT_EQ(Said(wire::FromWorker::kStepDone)->step_done().records_size(), 2);
}

TEST_F(MemberTest, AHaltedWorkerWaitsForItsCoordinatorForABoundedTime) {
  Train();
  Tell(StreamDown{"gone"});
  FailStep();
  now_ += std::chrono::seconds(9);
  Tell(MemberTicked());
  EXPECT_EQ(Action<ExitWorker>(), nullptr);
  now_ += std::chrono::seconds(2);
  Tell(MemberTicked());
  ASSERT_NE(Action<ExitWorker>(), nullptr);
  EXPECT_EQ(Action<ExitWorker>()->code, 1);
}

TEST_F(MemberTest, ExitCodesSayWhy) {
  const auto code_after = [&](const std::function<void(wire::ToWorker&)>& fill) {
    Member copy = member_;
    FromCoordinator event;
    fill(event.message);
    const std::vector<MemberAction> actions = copy.Handle(event, now_);
    return actions.empty() ? -1 : std::get<ExitWorker>(actions.back()).code;
  };
  EXPECT_EQ(code_after([](wire::ToWorker& m) { m.mutable_release(); }), 0);
  EXPECT_EQ(code_after([](wire::ToWorker& m) { m.mutable_abandon(); }), 1);
  EXPECT_EQ(code_after([](wire::ToWorker& m) { m.mutable_refused()->set_permanent(true); }), 2);
}

TEST_F(MemberTest, ARefusalIsNotedOnceAndDoesNotProlongTheWait) {
  const std::string taken = "a worker named a is connected";
  const auto refuse = [&](const std::string& reason) {
    actions_.clear();
    Tell(StreamUp());
    Command([&](wire::ToWorker& message) { message.mutable_refused()->set_reason(reason); });
    Tell(StreamDown{"closed"});
  };
  refuse(taken);
  ASSERT_NE(Action<NoteRefusal>(), nullptr);
  EXPECT_EQ(Action<NoteRefusal>()->reason, taken);
  for (int second = 1; second < 60; ++second) {
    now_ += std::chrono::seconds(1);
    refuse(taken);
    EXPECT_EQ(Action<NoteRefusal>(), nullptr);
    Tell(MemberTicked());
    ASSERT_EQ(Action<ExitWorker>(), nullptr);
  }
  refuse("another reason");
  EXPECT_NE(Action<NoteRefusal>(), nullptr);
  refuse(taken);
  now_ += std::chrono::seconds(1);
  Tell(MemberTicked());
  ASSERT_NE(Action<ExitWorker>(), nullptr);
  EXPECT_EQ(Action<ExitWorker>()->code, 1);
  EXPECT_THAT(Action<ExitWorker>()->reason, testing::HasSubstr(taken));
}

TEST_F(MemberTest, AFailureOfItsOwnIsSaidBeforeItLeaves) {
  Train();
  RunEnded ended;
  ended.generation = 1;
  ended.applied_step = 5;
  ended.status = ResourceExhaustedError("out of memory");
  Tell(ended);
  ASSERT_NE(Said(wire::FromWorker::kLeaving), nullptr);
  EXPECT_TRUE(Said(wire::FromWorker::kLeaving)->leaving().at_once());
  ASSERT_NE(Action<ExitWorker>(), nullptr);
  EXPECT_EQ(Action<ExitWorker>()->code, 1);
}

TEST_F(MemberTest, AReleaseSaysWhetherTheJobWaitsForWorkers) {
  for (const bool requeue : {false, true}) {
    member_ = Member(Identity(), MemberOptions(), now_);
    Train();
    Tell(TerminateRequested{"SIGTERM"});
    EXPECT_EQ(Code(), std::nullopt);
    Command([&](wire::ToWorker& message) { message.mutable_release()->set_requeue(requeue); });
    EXPECT_EQ(Code(), requeue ? 75 : 0);
  }
}

TEST_F(MemberTest, AReleaseThatComesInsteadOfAWelcomeCounts) {
  Train();
  Tell(TerminateRequested{"SIGTERM"});
  Tell(StreamDown{});
  Tell(StreamUp());
  Command([&](wire::ToWorker& message) { message.mutable_release()->set_requeue(true); });
  EXPECT_EQ(Code(), 75);
}

}  // namespace
}  // namespace heddle::elastic
