// How long an answer is waited for: as long as something is done for it.
#include "tests/elastic/control/transition/transitions_fixture.h"

namespace heddle::elastic {
namespace {

class ProgressTest : public TransitionsTest {
 protected:
  // Some time later the worker's counter stands higher.
  void Does(const std::string& name, Duration later, bool waits = false) {
    now_ += later;
    wire::Heartbeat heartbeat;
    heartbeat.set_progress(++progress_);
    heartbeat.set_waits(waits);
    roster_.TakeHeartbeat(name, heartbeat, job_.policy.profile_timeout, now_);
  }
  void Waits(const std::string& name, const std::string& other = "") {
    wire::Heartbeat heartbeat;
    heartbeat.set_waits(true);
    if (!other.empty()) {
      heartbeat.add_waits_for(other);
      heartbeat.set_waits_generation(transitions_.current()->generation);
    }
    roster_.TakeHeartbeat(name, heartbeat, job_.policy.profile_timeout, now_);
  }
  // All are heard at the moment at which somebody is late.
  Effects CheckWithAllHeard() {
    now_ = *transitions_.NextDeadline(job_.policy, roster_);
    for (ConnectionId connection = 1; connection < next_; ++connection) {
      roster_.NoteHeard(connection, now_);
    }
    return Do(&Transitions::CheckDeadline);
  }
  void FormUntilMoving() {
    Do(&Transitions::Form);
    Planned({"a", "b"});
    Prepared("a");
    Prepared("b");
    ASSERT_TRUE(Stage<Moving>());
  }

  int64_t progress_ = 0;
};

TEST_F(ProgressTest, WhoDoesSomethingIsNotLate) {
  Do(&Transitions::Form);
  Planned({"a", "b"});
  const Time asked = now_;
  Does("a", std::chrono::seconds(15));
  EXPECT_EQ(transitions_.NextDeadline(job_.policy, roster_), asked + job_.policy.reply_timeout);
  EXPECT_THAT(Late(), ElementsAre("b"));
  Prepared("b");
  EXPECT_EQ(transitions_.NextDeadline(job_.policy, roster_),
            asked + std::chrono::seconds(15) + job_.policy.reply_timeout);
  EXPECT_THAT(Late(), ElementsAre("a")) << "it has stood still since";
}

TEST_F(ProgressTest, WhenAllHaveAnsweredOrAreLostOnlyFurtherLossesAreWaitedFor) {
  FormTwo();
  Do(&Transitions::Recover, Cause::kFailure);
  ASSERT_TRUE(Stage<Halting>());
  EXPECT_THAT(Late(), ElementsAre("a", "b"));
  Lose("a");
  Lose("b");
  EXPECT_EQ(transitions_.NextDeadline(job_.policy, roster_), now_ + job_.policy.coalesce);
}

TEST_F(ProgressTest, AMoveMayTakeAsLongAsBytesMove) {
  FormUntilMoving();
  Ready("b");
  for (int i = 0; i < 20; ++i) {
    Does("a", job_.policy.move_timeout - Duration(1));
    EXPECT_THAT(Do(&Transitions::CheckDeadline).losses, IsEmpty());
  }
  EXPECT_THAT(Late(), ElementsAre("a"));
}

TEST_F(ProgressTest, WhoWaitsForOthersIsNotLateAsLongAsOneOfThemDoesSomething) {
  FormUntilMoving();
  Waits("a");
  Does("b", job_.policy.move_timeout - Duration(1));
  now_ += job_.policy.move_timeout - Duration(1);
  EXPECT_THAT(Do(&Transitions::CheckDeadline).losses, IsEmpty());
  EXPECT_THAT(Late(), ElementsAre("b")) << "a waits for it";
}

TEST_F(ProgressTest, WhoIsLateAloneIsNamedWithThoseWhoWaitForIt) {
  FormUntilMoving();
  Waits("a", "b");
  const Effects late = CheckWithAllHeard();
  ASSERT_THAT(late.losses, SizeIs(1));
  EXPECT_EQ(late.losses[0].worker, "b");
  EXPECT_EQ(late.losses[0].reason, "it did not answer in time: a waits for b");
}

// Of those who all say that they wait nobody can be told from the others: the fence ends their
// waits, and who does not answer that hangs.
TEST_F(ProgressTest, WhenAllWaitForEachOtherNobodyIsGivenUpAtOnce) {
  for (const char* other : {"", "a"}) {
    FormUntilMoving();
    Waits("a", "b");
    Waits("b", other);
    EXPECT_THAT(CheckWithAllHeard().losses, IsEmpty());
    ASSERT_TRUE(Stage<Halting>());
    EXPECT_THAT(transitions_.current()->awaited(), ElementsAre("a", "b"));
    EXPECT_THAT(Late(), ElementsAre("a", "b")) << "a wait is no excuse for the fence";
    transitions_.Drop(generations_);
    blame_.ForgetCircle();
  }
}

TEST_F(ProgressTest, WhenTheyWaitInACircleAgainTheHighestRankGoes) {
  FormUntilMoving();
  Waits("a", "b");
  Waits("b", "a");
  EXPECT_THAT(CheckWithAllHeard().losses, IsEmpty());
  ASSERT_TRUE(Stage<Halting>());
  transitions_.Drop(generations_);
  FormUntilMoving();
  Waits("a", "b");
  Waits("b", "a");
  const Effects again = CheckWithAllHeard();
  ASSERT_THAT(again.losses, SizeIs(1));
  EXPECT_EQ(again.losses[0].worker, "b");
  EXPECT_THAT(again.losses[0].reason, HasSubstr("again a waits for b waits for a"));
}

TEST_F(ProgressTest, WhoHasAnsweredIsNotAtFault) {
  FormUntilMoving();
  Ready("b");
  Waits("a", "b");
  EXPECT_THAT(CheckWithAllHeard().losses, IsEmpty());
  EXPECT_TRUE(Stage<Halting>());
}

TEST_F(ProgressTest, MembersAreWaitedForWhileAnyOfThemRunsItsStep) {
  FormTwo();
  JoinAndPlan();
  for (const char* name : {"a", "b", "c"}) {
    Prepared(name);
  }
  ASSERT_TRUE(Stage<Stopping>());
  Does("b", job_.policy.stop_timeout - Duration(1));
  EXPECT_EQ(transitions_.NextDeadline(job_.policy, roster_), now_ + job_.policy.stop_timeout);
  Does("c", std::chrono::seconds(1));
  EXPECT_EQ(transitions_.NextDeadline(job_.policy, roster_),
            now_ - std::chrono::seconds(1) + job_.policy.stop_timeout)
      << "c runs nothing";
}

TEST_F(ProgressTest, ASurvivorThatEndsWhatItDoesIsWaitedFor) {
  FormTwo();
  Do(&Transitions::Recover, Cause::kLoss);
  Does("a", job_.policy.reply_timeout - Duration(1));
  EXPECT_THAT(Late(), ElementsAre("b"));
}

TEST_F(ProgressTest, ACounterThatIsNoHigherTellsOfNothing) {
  const Time begun = now_;
  Does("a", std::chrono::seconds(1));
  wire::Heartbeat heartbeat;
  for (const int64_t count : {progress_, progress_ - 1}) {
    heartbeat.set_progress(count);
    roster_.TakeHeartbeat("a", heartbeat, job_.policy.profile_timeout, now_ + Duration(1));
    EXPECT_EQ(roster_.at("a").progressed_at, begun + std::chrono::seconds(1));
  }
}

TEST_F(ProgressTest, AProfileMayTakeAsLongAsItsItemsAreMeasured) {
  wire::Hello hello;
  hello.set_name("c");
  hello.set_incarnation(std::string(16, 'c'));
  hello.set_host("another");
  roster_.Join(next_++, hello, now_);
  roster_.Welcome("c", false, job_, 0, out_);
  roster_.ScheduleProfiles({}, job_.policy.profile_timeout, now_, out_);
  ASSERT_EQ(roster_.at("c").profiling_until, now_ + job_.policy.profile_timeout);
  Does("c", job_.policy.profile_timeout - Duration(1));
  EXPECT_EQ(roster_.at("c").profiling_until, now_ + job_.policy.profile_timeout);
}

}  // namespace
}  // namespace heddle::elastic
