// Looking for a plan while workers come and go, and while the planner takes its time or has none.
#include "tests/elastic/control/transition/transitions_fixture.h"

namespace heddle::elastic {
namespace {

class PlanningTest : public TransitionsTest {
 protected:
  // A recovery of a and b whose plan is being looked for.
  void RecoverUntilPlanned() {
    Do(&Transitions::Recover, Cause::kLoss);
    wire::Halted halted;
    halted.set_held_generation(generations_.held()->number);
    const std::set<std::string> awaited = transitions_.current()->awaited();
    for (const std::string& name : awaited) {
      transitions_.TakeHalted(name, halted);
    }
    now_ += job_.policy.coalesce;
    Do(&Transitions::LeaveHalt);
    ASSERT_TRUE(Stage<Planning>());
  }
  const Planning& Asked() const { return *transitions_.current()->In<Planning>(); }
  void Refuse() {
    PlanOutcome none;
    none.request_id = Asked().request;
    none.status = ResourceExhaustedError("the model does not fit");
    Do(&Transitions::OnPlanned, none);
  }
};

TEST_F(PlanningTest, LosingAStandbyDoesNotHoldUpTheRecovery) {
  FormTwo();
  Add("c");
  RecoverUntilPlanned();
  const int64_t request = Asked().request;
  Lose("c");
  ASSERT_TRUE(Stage<Planning>()) << "it holds nothing";
  EXPECT_EQ(Asked().request, request);
  Planned({"a", "b"});
  EXPECT_TRUE(Stage<Preparing>());
}

TEST_F(PlanningTest, APlanThatNamesALostWorkerIsLookedForOnceMore) {
  FormTwo();
  Add("c");
  RecoverUntilPlanned();
  const int64_t request = Asked().request;
  Lose("c");
  Planned({"a", "b", "c"});
  ASSERT_TRUE(Stage<Planning>());
  EXPECT_GT(Asked().request, request);
  EXPECT_THAT(Asked().asked, ElementsAre("a", "b"));
}

TEST_F(PlanningTest, AFurtherRecoveryWithoutAStepCountsOnNobodyWhoCameSince) {
  FormTwo();
  RecoverUntilPlanned();
  Add("c");
  RecoverUntilPlanned();
  EXPECT_THAT(Asked().asked, ElementsAre("a", "b"));
  Refuse();
  Do(&Transitions::CheckDeadline);
  EXPECT_THAT(Asked().asked, ElementsAre("a", "b", "c")) << "without it there is no plan";
  Planned({"a", "b", "c"});
  recoveries_.StepDone();
  Add("d");
  RecoverUntilPlanned();
  EXPECT_THAT(Asked().asked, ElementsAre("a", "b", "c", "d"));
}

TEST_F(PlanningTest, FormingGoesOnWithoutALostOneAsLongAsEnoughAreLeft) {
  Add("c");
  Do(&Transitions::Form);
  Lose("c");
  ASSERT_TRUE(Stage<Planning>());
  Lose("b");
  EXPECT_FALSE(transitions_.current());
}

TEST_F(PlanningTest, NoChangeBeginsWhileAMemberIsAbsent) {
  FormTwo();
  Add("c");
  roster_.SetAbsent({"b"});
  Do(&Transitions::Consider);
  EXPECT_FALSE(transitions_.current());
  roster_.Drain("a", "drained");
  Do(&Transitions::Consider);
  EXPECT_FALSE(transitions_.current());
  roster_.SetAbsent({});
  Do(&Transitions::Consider);
  EXPECT_TRUE(Stage<Planning>());
}

TEST_F(PlanningTest, APlanThatComesLateIsTaken) {
  Do(&Transitions::Form);
  now_ = *transitions_.NextDeadline(job_.policy, roster_);
  Do(&Transitions::CheckDeadline);
  ASSERT_TRUE(transitions_.current()->IsStuck());
  const int64_t request = Asked().request;
  now_ += std::chrono::minutes(20);
  Do(&Transitions::CheckDeadline);
  EXPECT_EQ(Asked().request, request) << "the planner is still at it";
  Planned({"a", "b"});
  EXPECT_TRUE(Stage<Preparing>());
}

TEST_F(PlanningTest, ALatePlanOfWhoIsGoneIsNotTaken) {
  Add("c");
  FormTwo();
  RecoverUntilPlanned();
  now_ = *transitions_.NextDeadline(job_.policy, roster_);
  Do(&Transitions::CheckDeadline);
  ASSERT_TRUE(transitions_.current()->IsStuck());
  Lose("c");
  Planned({"a", "c"});
  ASSERT_TRUE(Stage<Planning>());
  EXPECT_THAT(Asked().asked, ElementsAre("a", "b"));
}

TEST_F(PlanningTest, ARefusedPlanIsLookedForAgainMoreAndMoreRarely) {
  Do(&Transitions::Form);
  const Time first = now_;
  int64_t request = Asked().request;
  for (const int seconds : {2, 4, 8, 16, 32, 60, 60}) {
    Refuse();
    EXPECT_EQ(transitions_.NextDeadline(job_.policy, roster_),
              now_ + std::chrono::seconds(seconds));
    Do(&Transitions::CheckDeadline);
    EXPECT_EQ(Asked().request, request) << "it is not time yet";
    now_ += std::chrono::seconds(seconds);
    Do(&Transitions::CheckDeadline);
    EXPECT_GT(Asked().request, request);
    request = Asked().request;
  }
  EXPECT_TRUE(transitions_.current()->IsStuck());
  EXPECT_EQ(Asked().stuck_since, first) << "asking again is no plan";
  Planned({"a", "b"});
  EXPECT_TRUE(Stage<Preparing>());
}

TEST_F(PlanningTest, AskingAgainDoesNotPutOffTheEndOfThePause) {
  job_.policy.paused_timeout = std::chrono::seconds(5);
  Do(&Transitions::Form);
  Refuse();
  for (int i = 0; i < 2; ++i) {
    now_ = *transitions_.NextDeadline(job_.policy, roster_);
    if (const Effects over = Do(&Transitions::CheckDeadline); over.end) {
      EXPECT_EQ(i, 1);
      return;
    }
    Refuse();
  }
  ADD_FAILURE() << "it waits for ever";
}

}  // namespace
}  // namespace heddle::elastic
