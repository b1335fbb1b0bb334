// Who may come, who may come again, and whose time is over.
#include "elastic/control/membership/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/protocol/version.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = Roster::Answer::Kind;

class RosterTest : public testing::Test {
 protected:
  static wire::Hello HelloOf(const std::string& name, char incarnation) {
    wire::Hello hello;
    hello.set_name(name);
    hello.set_incarnation(std::string(16, incarnation));
    hello.set_protocol_version(kProtocolVersion);
    hello.set_host("host-" + name);
    return hello;
  }
  Kind Judge(const wire::Hello& hello) {
    return roster_.Judge(hello, false, now_, policy_.lease).kind;
  }

  JobPolicy policy_;
  Time now_{std::chrono::seconds(100)};
  Roster roster_;
  Outbox out_{[] { return DurableState(); }};
};

// Before its first generation, too: a process that was given up may hold anything.
TEST_F(RosterTest, AnIncarnationThatWasGivenUpDoesNotComeBackEvenWithoutAGeneration) {
  const wire::Hello hello = HelloOf("a", 'A');
  EXPECT_EQ(Judge(hello), Kind::kJoin);
  roster_.Join(1, hello, now_);
  roster_.Dismiss("a", "no heartbeat for 3.0 s", out_);
  const Roster::Answer answer = roster_.Judge(hello, false, now_, policy_.lease);
  EXPECT_EQ(answer.kind, Kind::kRefuse);
  EXPECT_TRUE(answer.permanent);
  EXPECT_THAT(answer.reason, HasSubstr("given up (no heartbeat for 3.0 s)"));
  EXPECT_EQ(Judge(HelloOf("another-name", 'A')), Kind::kRefuse);
  EXPECT_EQ(Judge(HelloOf("a", 'B')), Kind::kJoin) << "its successor may";
}

TEST_F(RosterTest, AWorkerThatLeftBeforeAJobMayComeAgain) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Dismiss("a", "", out_);
  EXPECT_EQ(Judge(HelloOf("a", 'A')), Kind::kJoin);
}

TEST_F(RosterTest, AnUnknownWorkerOfAnyGenerationIsStale) {
  wire::Hello hello = HelloOf("a", 'A');
  hello.set_generation(1);
  EXPECT_EQ(Judge(hello), Kind::kRefuse);
  hello.set_generation(0);
  hello.set_staged_generation(1);
  EXPECT_EQ(Judge(hello), Kind::kRefuse);
}

TEST_F(RosterTest, AProcessTakesTheNameOfOneThatIsNotHeardAnyMore) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  const Roster::Answer early = roster_.Judge(HelloOf("a", 'B'), false, now_, policy_.lease);
  EXPECT_EQ(early.kind, Kind::kRefuse);
  EXPECT_FALSE(early.permanent);
  now_ += policy_.lease;
  EXPECT_EQ(Judge(HelloOf("a", 'B')), Kind::kReplace);
  now_ -= policy_.lease;
  roster_.Disconnect(1, now_);
  EXPECT_EQ(Judge(HelloOf("a", 'B')), Kind::kReplace);
  EXPECT_EQ(Judge(HelloOf("a", 'A')), Kind::kReturn);
}

TEST_F(RosterTest, NamesThatWereNotAskedForAreNumbered) {
  EXPECT_EQ(roster_.Join(1, HelloOf("", 'A'), now_), "worker-1");
  EXPECT_EQ(roster_.Join(2, HelloOf("worker-2", 'B'), now_), "worker-2");
  EXPECT_EQ(roster_.Join(3, HelloOf("", 'C'), now_), "worker-3");
  roster_.Dismiss("worker-3", "lost", out_);
  EXPECT_EQ(roster_.Join(4, HelloOf("", 'D'), now_), "worker-4") << "never again";
}

TEST_F(RosterTest, AWorkerIsOverdueWithItsLeaseAndNotBefore) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  EXPECT_EQ(roster_.NextDeadline(policy_), now_ + policy_.lease);
  now_ += policy_.lease - Duration(1);
  EXPECT_THAT(roster_.Overdue(policy_, now_), IsEmpty());
  EXPECT_THAT(roster_.Overdue(policy_, now_ + Duration(1)), SizeIs(1));
}

TEST_F(RosterTest, ABrokenStreamIsOverdueWithItsGrace) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  EXPECT_EQ(roster_.Disconnect(1, now_), "a");
  EXPECT_EQ(roster_.NextDeadline(policy_), now_ + policy_.reconnect_grace);
  EXPECT_THAT(roster_.Overdue(policy_, now_ + policy_.reconnect_grace - Duration(1)), IsEmpty());
  const auto losses = roster_.Overdue(policy_, now_ + policy_.reconnect_grace);
  ASSERT_THAT(losses, SizeIs(1));
  EXPECT_EQ(losses[0].reason, "its connection broke");
}

TEST_F(RosterTest, SilenceThatWasTheCoordinatorsOwnIsForgivenByHalfALease) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Join(2, HelloOf("b", 'B'), now_);
  now_ += 10 * policy_.lease;
  roster_.Hear(2, now_);
  roster_.ForgiveSilence(policy_.lease, now_);
  EXPECT_THAT(roster_.Overdue(policy_, now_), IsEmpty());
  EXPECT_EQ(roster_.at("a").last_word, now_ - policy_.lease / 2);
  EXPECT_EQ(roster_.at("b").last_word, now_) << "not made older";
  EXPECT_THAT(roster_.Overdue(policy_, now_ + policy_.lease / 2), SizeIs(1));
}

TEST_F(RosterTest, AnOldStreamSaysNothingForAWorkerThatReturned) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Return(2, HelloOf("a", 'A'), now_, out_);
  EXPECT_EQ(roster_.Hear(1, now_), nullptr);
  EXPECT_EQ(roster_.Disconnect(1, now_), "");
  ASSERT_NE(roster_.Hear(2, now_), nullptr);
  EXPECT_TRUE(roster_.Check().ok());
}

TEST_F(RosterTest, OneOfAHostIsProfiledAtATimeAndInTime) {
  Job job;
  for (const char* name : {"a", "b", "c"}) {
    wire::Hello hello = HelloOf(name, *name);
    hello.set_host(*name == 'c' ? "busy" : "one");
    roster_.Join(*name, hello, now_);
    roster_.Welcome(name, false, job, 0, out_);
  }
  roster_.ScheduleProfiles({"busy"}, std::chrono::seconds(1), now_, out_);
  roster_.ScheduleProfiles({"busy"}, std::chrono::seconds(1), now_, out_);
  EXPECT_TRUE(roster_.at("a").profiling_until);
  EXPECT_FALSE(roster_.at("b").profiling_until);
  EXPECT_FALSE(roster_.at("c").profiling_until);
  EXPECT_THAT(roster_.Overdue(policy_, now_ + std::chrono::seconds(1)), SizeIs(1));
  roster_.TakeProfile("a", "{}");
  EXPECT_THAT(roster_.Overdue(policy_, now_ + std::chrono::seconds(1)), IsEmpty());
  EXPECT_THAT(CandidatesOf(roster_), testing::ElementsAre("a"));
}

}  // namespace
}  // namespace heddle::elastic
