// A change of generation, stage by stage: what each stage waits for, and what a loss in it means.
#include "tests/elastic/control/transition/transitions_fixture.h"

namespace heddle::elastic {
namespace {

TEST_F(TransitionsTest, FormingPassesItsStagesOneByOne) {
  Do(&Transitions::Form);
  EXPECT_TRUE(Stage<Planning>());
  Planned({"a", "b"});
  EXPECT_TRUE(Stage<Preparing>());
  EXPECT_EQ(generations_.counter(), 1);
  Prepared("a");
  Prepared("a");
  EXPECT_TRUE(Stage<Preparing>()) << "b has not answered";
  Prepared("b");
  EXPECT_TRUE(Stage<Moving>());
  Ready("b");
  EXPECT_FALSE(generations_.held());
  Ready("a");
  EXPECT_FALSE(transitions_.current());
  EXPECT_EQ(generations_.held()->number, 1);
  EXPECT_EQ(roster_.at("a").standing, wire::STANDING_TRAINING);
}

TEST_F(TransitionsTest, AChangeStopsTheMembersBeforeItMoves) {
  FormTwo();
  JoinAndPlan();
  for (const char* name : {"a", "b", "c"}) {
    Prepared(name);
  }
  ASSERT_TRUE(Stage<Stopping>());
  EXPECT_THAT(transitions_.current()->awaited(), ElementsAre("a", "b")) << "c runs nothing";
  Do(&Transitions::OnStopped, "a", 1, 7);
  EXPECT_TRUE(Stage<Stopping>());
  Do(&Transitions::OnStopped, "b", 1, 7);
  ASSERT_TRUE(Stage<Moving>());
  EXPECT_EQ(transitions_.current()->next()->origin.step, 7);
  EXPECT_THAT(transitions_.current()->awaited(), ElementsAre("a", "b", "c"));
}

TEST_F(TransitionsTest, MembersThatStopAfterUnlikeStepsAreRecovered) {
  FormTwo();
  JoinAndPlan();
  for (const char* name : {"a", "b", "c"}) {
    Prepared(name);
  }
  Do(&Transitions::OnStopped, "a", 1, 7);
  Do(&Transitions::OnStopped, "b", 1, 8);
  ASSERT_TRUE(Stage<Halting>());
  EXPECT_THAT(transitions_.current()->awaited(), ElementsAre("a", "b", "c"));
}

TEST_F(TransitionsTest, AnotherProgramOrAnErrorLosesTheWorker) {
  Do(&Transitions::Form);
  Planned({"a", "b"});
  wire::Prepared message;
  message.set_generation(1);
  message.set_program_hash(1);
  const auto differs = Do(&Transitions::OnPrepared, "b", message).losses;
  ASSERT_THAT(differs, SizeIs(1));
  EXPECT_EQ(differs[0].worker, "b");
  EXPECT_THAT(differs[0].reason, HasSubstr("program differs"));
  message.set_error("no memory");
  EXPECT_THAT(Do(&Transitions::OnPrepared, "a", message).losses[0].reason, HasSubstr("no memory"));
}

TEST_F(TransitionsTest, AnswersOfAnotherGenerationChangeNothing) {
  Do(&Transitions::Form);
  Planned({"a", "b"});
  wire::Prepared prepared;
  prepared.set_generation(7);
  EXPECT_THAT(Do(&Transitions::OnPrepared, "a", prepared).losses, IsEmpty());
  EXPECT_THAT(transitions_.current()->awaited(), SizeIs(2));
  Prepared("a");
  Prepared("b");
  wire::Ready ready;
  ready.set_generation(7);
  Do(&Transitions::OnReady, "a", ready);
  EXPECT_THAT(transitions_.current()->awaited(), SizeIs(2));
}

TEST_F(TransitionsTest, APlanOfAnOlderRequestOrWithAStrangerIsNotTaken) {
  Do(&Transitions::Form);
  PlanOutcome old;
  old.request_id = transitions_.current()->In<Planning>()->request - 1;
  old.members = {"a", "b"};
  Do(&Transitions::OnPlanned, old);
  EXPECT_TRUE(Stage<Planning>());
  Planned({"a", "stranger"});
  EXPECT_TRUE(transitions_.current()->IsStuck());
}

// A gain of two hundredths, and of one and a half times what the change costs.
TEST_F(TransitionsTest, AChangeThatDoesNotPayIsLeftOut) {
  FormTwo();
  const auto changes_with = [&](double seconds, int64_t steps_left, double move_seconds) {
    job_.policy.total_steps = steps_.known() + steps_left;
    transitions_.Drop(generations_);
    transitions_.Forget("c");
    Do(&Transitions::Consider);
    PlanOutcome outcome;
    outcome.request_id = transitions_.current()->In<Planning>()->request;
    outcome.members = {"a", "b", "c"};
    outcome.predicted_step_seconds = seconds;
    outcome.current_step_seconds = 1;
    outcome.move_seconds = move_seconds;
    Do(&Transitions::OnPlanned, outcome);
    return transitions_.current().has_value();
  };
  Add("c");
  EXPECT_FALSE(changes_with(0.981, 1000000, 0)) << "within the error of the prediction";
  EXPECT_TRUE(changes_with(0.979, 1000000, 0));
  EXPECT_TRUE(changes_with(0.5, 100, 33)) << "50 s against 1.5 times 33.1 s";
  EXPECT_FALSE(changes_with(0.5, 100, 33.5)) << "50 s against 1.5 times 33.6 s";
}

TEST_F(TransitionsTest, AJoinIsLookedAtOnce) {
  FormTwo();
  Add("c");
  Do(&Transitions::Consider);
  Planned({"a", "b"}, 1);
  EXPECT_FALSE(transitions_.current());
  Do(&Transitions::Consider);
  EXPECT_FALSE(transitions_.current()) << "c was considered, and does not pay";
  Add("d");
  Do(&Transitions::Consider);
  EXPECT_TRUE(Stage<Planning>());
}

TEST_F(TransitionsTest, LosingAMemberOfTheGenerationEndsAChange) {
  FormTwo();
  JoinAndPlan();
  Lose("b");
  ASSERT_TRUE(Stage<Halting>());
  EXPECT_EQ(transitions_.current()->fence, 4) << "above what was prepared";
  EXPECT_THAT(transitions_.current()->awaited(), ElementsAre("a", "c"));
}

TEST_F(TransitionsTest, LosingANewcomerBeforeTheStopLeavesTheOthersTraining) {
  FormTwo();
  JoinAndPlan();
  Lose("c");
  EXPECT_FALSE(transitions_.current());
  EXPECT_EQ(generations_.held()->number, 1);
}

TEST_F(TransitionsTest, LosingANewcomerAfterTheStopIsARecovery) {
  FormTwo();
  JoinAndPlan();
  for (const char* name : {"a", "b", "c"}) {
    Prepared(name);
  }
  Lose("c");
  EXPECT_TRUE(Stage<Halting>());
}

TEST_F(TransitionsTest, LosingAnOnlookerChangesNothing) {
  FormTwo();
  Add("d");
  roster_.Drain("d", "drained");  // Not planned with.
  JoinAndPlan();
  Lose("d");
  EXPECT_TRUE(Stage<Preparing>());
}

TEST_F(TransitionsTest, ARecoveryThatPlansGoesBackToTheFenceWithALoss) {
  FormTwo();
  Do(&Transitions::Recover, Cause::kLoss);
  const int64_t fence = transitions_.current()->fence;
  wire::Halted halted;
  halted.set_held_generation(1);
  ASSERT_TRUE(transitions_.AwaitsHalted("a", fence));
  EXPECT_FALSE(transitions_.AwaitsHalted("a", fence - 1));
  transitions_.TakeHalted("a", halted);
  EXPECT_FALSE(transitions_.AwaitsHalted("a", fence)) << "once";
  transitions_.TakeHalted("b", halted);
  Do(&Transitions::LeaveHalt);
  EXPECT_TRUE(Stage<Halting>()) << "further losses are waited for";
  now_ += job_.policy.coalesce;
  Do(&Transitions::LeaveHalt);
  ASSERT_TRUE(Stage<Planning>());
  Lose("b");
  ASSERT_TRUE(Stage<Halting>());
  EXPECT_EQ(transitions_.current()->fence, fence) << "nobody has begun anything";
  EXPECT_THAT(transitions_.current()->In<Halting>()->halted, SizeIs(1));
  Do(&Transitions::LeaveHalt);
  EXPECT_TRUE(Stage<Halting>());
  now_ += job_.policy.coalesce;
  Do(&Transitions::LeaveHalt);
  EXPECT_TRUE(Stage<Planning>());
}

TEST_F(TransitionsTest, WhoAnswersTooLateIsLost) {
  Do(&Transitions::Form);
  Planned({"a", "b"});
  Prepared("b");
  EXPECT_THAT(Late(), ElementsAre("a"));
  Prepared("a");
  Ready("b");
  EXPECT_THAT(Late(), ElementsAre("a"));
  Ready("a");
  Do(&Transitions::Recover, Cause::kLoss);
  EXPECT_THAT(Late(), ElementsAre("a", "b"));
}

TEST_F(TransitionsTest, NobodyIsLateWhileTheCoordinatorHearsNobody) {
  Do(&Transitions::Form);
  Planned({"a", "b"});
  const auto deadline = [this] { return *transitions_.NextDeadline(job_.policy, roster_); };
  const Time before = deadline();
  transitions_.Excuse(std::chrono::seconds(12));
  EXPECT_EQ(deadline(), before + std::chrono::seconds(12));
}

TEST_F(TransitionsTest, AStopThatIsLateIsARecoveryOfAll) {
  FormTwo();
  JoinAndPlan();
  for (const char* name : {"a", "b", "c"}) {
    Prepared(name);
  }
  EXPECT_THAT(Late(), IsEmpty());
  EXPECT_TRUE(Stage<Halting>());
}

TEST_F(TransitionsTest, WithoutAPlanItWaitsForOtherWorkersAndNotForEver) {
  job_.policy.paused_timeout = std::chrono::seconds(60);
  Do(&Transitions::Form);
  PlanOutcome none;
  none.request_id = transitions_.current()->In<Planning>()->request;
  none.status = ResourceExhaustedError("the model does not fit");
  Do(&Transitions::OnPlanned, none);
  EXPECT_TRUE(transitions_.current()->IsStuck());
  Do(&Transitions::CheckDeadline);
  EXPECT_TRUE(transitions_.current()->IsStuck()) << "the workers are the same";
  Add("c");
  Do(&Transitions::CheckDeadline);
  EXPECT_FALSE(transitions_.current()->IsStuck());
  none.request_id = transitions_.current()->In<Planning>()->request;
  Do(&Transitions::OnPlanned, none);
  now_ += job_.policy.paused_timeout;
  const Effects over = Do(&Transitions::CheckDeadline);
  ASSERT_TRUE(over.end);
  EXPECT_TRUE(over.end->bad_input) << "its first workers cannot run it";
  EXPECT_THAT(over.end->reason, HasSubstr("the model does not fit"));
}

TEST_F(TransitionsTest, TheLastWorkersAreNotDrained) {
  FormTwo();
  roster_.Drain("a", "drained");
  roster_.Drain("b", "drained");
  Do(&Transitions::Consider);
  EXPECT_FALSE(roster_.at("a").draining);
  EXPECT_FALSE(roster_.at("b").draining);
}

TEST_F(TransitionsTest, ACheckpointThatCannotBeReadIsRefusedAndALiveSourceIsNot) {
  saves_.Restore({10});
  Do(&Transitions::Form);
  Planned({"a", "b"});
  Prepared("a");
  Prepared("b");
  wire::Ready message;
  message.set_generation(1);
  message.set_error("a checksum differs");
  message.set_source_unreadable(true);
  Do(&Transitions::OnReady, "a", message);
  EXPECT_THAT(saves_.committed(), IsEmpty());
  EXPECT_EQ(saves_.unsound(), "a checksum differs");
  EXPECT_TRUE(Stage<Halting>());
}

TEST_F(TransitionsTest, AWorkerThatComesBackIsNotifiedAgainOfWhatIsAwaitedOfIt) {
  Do(&Transitions::Form);
  Planned({"a", "b"});
  Prepared("b");
  TransitionContext context = MakeContext();
  const auto announced_again = [&](const std::string& name) {
    out_.Take();
    transitions_.Resend(roster_.at(name), context);
    return out_.Take().size();
  };
  EXPECT_EQ(announced_again("a"), 1U);
  EXPECT_EQ(announced_again("b"), 0U) << "it has answered";
  Prepared("a");
  EXPECT_EQ(announced_again("a"), 2U) << "Prepare and Start";
}

}  // namespace
}  // namespace heddle::elastic
