// Most workers are not given up at once because nothing shows that they live.
#include "elastic/control/membership/loss_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/limits.h"
#include "elastic/protocol/version.h"
#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Workers a to h, two a host, four a failure domain.
class LossLimitTest : public testing::Test {
 protected:
  explicit LossLimitTest(int count = 8) {
    for (int i = 0; i < count; ++i) {
      const char name = static_cast<char>('a' + i);
      wire::Hello hello;
      hello.set_name(std::string(1, name));
      hello.set_incarnation(std::string(16, name));
      hello.set_protocol_version(kProtocolVersion);
      (*hello.mutable_arithmetic())["processor"] = "EPYC";
      hello.set_host("host-" + std::to_string(i / 2));
      hello.set_failure_domain("rack-" + std::to_string(i / 4));
      roster_.Join(name, hello, now_);
    }
  }
  void NoteHeard(const std::string& names) {
    for (const char name : names) {
      roster_.NoteHeard(name, now_);
    }
  }
  // Whom it lets go of those.
  std::vector<std::string> Admit(const std::string& names) {
    std::vector<Loss> suspected;
    for (const char name : names) {
      suspected.push_back({std::string(1, name), "no heartbeat"});
    }
    std::vector<std::string> admitted;
    for (const Loss& loss : limit_.Admit(suspected, roster_, policy_, now_)) {
      roster_.Dismiss(loss.worker, loss.reason, true, out_);
      admitted.push_back(loss.worker);
    }
    return admitted;
  }
  void Look() { limit_.Look({}, roster_, policy_, now_); }

  JobPolicy policy_;
  Time now_{seconds(100)};
  Roster roster_;
  Outbox out_{[] { return DurableState(); }};
  LossLimit limit_;
};

TEST_F(LossLimitTest, HalfOfAllMayGoAtOnce) {
  now_ += policy_.lease;
  NoteHeard("efgh");
  EXPECT_THAT(Admit("abcd"), SizeIs(4));
  EXPECT_EQ(limit_.hold(), std::nullopt);
}

TEST_F(LossLimitTest, MoreThanHalfAreHeld) {
  now_ += policy_.lease;
  NoteHeard("fgh");
  EXPECT_THAT(Admit("abcde"), IsEmpty());
  const LossLimit::Hold wanted{.since = now_, .suspects = 5, .workers = 8};
  EXPECT_EQ(limit_.hold(), wanted);
  EXPECT_EQ(limit_.NextDeadline(policy_), now_ + policy_.mass_silence);
}

// The first one's lease ends a little before the others'.
TEST_F(LossLimitTest, WhoIsAboutToFallSilentCounts) {
  now_ += policy_.lease / 2;
  NoteHeard("fgh");
  EXPECT_THAT(Admit("a"), IsEmpty());
  EXPECT_EQ(limit_.hold()->suspects, 5);
}

TEST_F(LossLimitTest, WhoFellSilentOneAfterTheOtherCountsTogether) {
  for (const char name : std::string("abcd")) {
    now_ += seconds(4);
    NoteHeard("abcdefgh");
    EXPECT_THAT(Admit(std::string(1, name)), SizeIs(1)) << name;
  }
  now_ += seconds(4);
  NoteHeard("efgh");
  EXPECT_THAT(Admit("e"), IsEmpty());
  now_ += policy_.mass_silence - seconds(11);  // The first two are forgotten.
  NoteHeard("efgh");
  Look();
  EXPECT_EQ(limit_.hold(), std::nullopt);
  EXPECT_THAT(Admit("e"), ElementsAre("e"));
}

TEST_F(LossLimitTest, WhoComesAndGoesCountsOnce) {
  for (int life = 1; life <= 6; ++life) {
    now_ += policy_.lease;
    NoteHeard("abcdefg");
    EXPECT_THAT(Admit("h"), ElementsAre("h")) << life;
    wire::Hello hello;
    hello.set_name("h");
    hello.set_incarnation(std::string(16, static_cast<char>('0' + life)));
    hello.set_protocol_version(kProtocolVersion);
    (*hello.mutable_arithmetic())["processor"] = "EPYC";
    hello.set_host("host-3");
    roster_.Join('h', hello, now_);
  }
}

TEST_F(LossLimitTest, OneMayAlwaysGo) {
  for (const char name : std::string("bcdefgh")) {
    roster_.Dismiss(std::string(1, name), "killed", false, out_);
  }
  now_ += policy_.lease;
  EXPECT_THAT(Admit("a"), ElementsAre("a"));
}

TEST_F(LossLimitTest, WhenSomeAreHeardTheOthersMayGo) {
  now_ += policy_.lease;
  NoteHeard("fgh");
  EXPECT_THAT(Admit("abcde"), IsEmpty());
  Look();
  EXPECT_TRUE(limit_.hold());
  NoteHeard("efgh");
  Look();
  EXPECT_EQ(limit_.hold(), std::nullopt);
  EXPECT_EQ(limit_.NextDeadline(policy_), std::nullopt);
  EXPECT_THAT(Admit("abcd"), SizeIs(4));
}

TEST_F(LossLimitTest, AfterItsTimeAllGo) {
  now_ += policy_.lease;
  NoteHeard("fgh");
  EXPECT_THAT(Admit("abcde"), IsEmpty());
  now_ += policy_.mass_silence - Duration(1);
  NoteHeard("fgh");
  EXPECT_THAT(Admit("abcde"), IsEmpty());
  now_ += Duration(1);
  NoteHeard("fgh");
  EXPECT_THAT(Admit("abcde"), SizeIs(5));
  EXPECT_EQ(limit_.hold(), std::nullopt);
  EXPECT_THAT(Admit("f"), ElementsAre("f")) << "what follows is counted by itself";
}

TEST_F(LossLimitTest, WhomAnotherWorkerLostMayGo) {
  now_ += policy_.lease;
  NoteHeard("gh");
  EXPECT_THAT(Admit("abcdef"), IsEmpty());
  limit_.NoteAccused(roster_.at("a"), now_);  // With all of its rack.
  EXPECT_THAT(Admit("abcdef"), SizeIs(6)) << "two of eight are no longer many";
}

TEST_F(LossLimitTest, WhoWorksInTheHostOfALostOneMayGoWithoutARack) {
  now_ += policy_.lease;
  Worker alone = roster_.at("a");
  alone.failure_domain.clear();
  limit_.NoteAccused(alone, now_);
  NoteHeard("h");
  EXPECT_THAT(Admit("abcdefg"), ElementsAre("a", "b"));
  EXPECT_TRUE(limit_.hold());
}

TEST_F(LossLimitTest, WhoseConnectionsWereClosedMayGo) {
  for (const char name : std::string("abcdef")) {
    roster_.Disconnect(name, now_);
  }
  now_ += policy_.reconnect_grace;
  EXPECT_THAT(Admit("abcdef"), SizeIs(6));
}

TEST_F(LossLimitTest, WhomNobodyHasHeardForSoLongMayGo) {
  now_ += policy_.cut_off_timeout;
  NoteHeard("gh");
  EXPECT_THAT(Admit("abcdef"), SizeIs(6));
}

TEST_F(LossLimitTest, ThatKeepalivesFailProvesNoMoreThanSilence) {
  now_ += seconds(4);
  for (const char name : std::string("abcdef")) {
    roster_.Disconnect(name, now_);
  }
  NoteHeard("gh");
  EXPECT_THAT(Admit("abcdef"), IsEmpty());
}

TEST_F(LossLimitTest, WhoOwesAnAnswerCountsThoughItIsHeard) {
  EXPECT_THAT(Admit("abcde"), IsEmpty());
  limit_.Look({{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}, {"e", ""}}, roster_, policy_, now_);
  EXPECT_TRUE(limit_.hold());
  limit_.Look({{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}}, roster_, policy_, now_);
  EXPECT_FALSE(limit_.hold());
}

// In a whole coordinator: three of four fall silent while a recovery is under way.
class HeldTest : public CoordinatorTest {
 protected:
  HeldTest() {
    job_.policy.initial_workers = 4;
    Tell(Submitted{job_});
    for (const char* name : {"a", "b", "c", "d"}) {
      Join(name);
    }
    AnswerPlan();
    AnswerPrepared(1);
    AnswerReady(members_, 1);
    sent_.clear();
    Wait(1, {"a", "b", "c", "d"});
    Wait(10, {"a"});
  }
};

TEST_F(HeldTest, MostAreNotGivenUpAndTheStatusSaysWhy) {
  EXPECT_EQ(Count("worker_lost"), 0);
  ASSERT_EQ(Count("losses_held"), 1);
  EXPECT_EQ(std::get<int64_t>(*Logged("losses_held").Find("suspects")), 3);
  EXPECT_EQ(std::get<int64_t>(*Logged("losses_held").Find("workers")), 4);
  EXPECT_THAT(coordinator_.StatusAt(now_).reason(),
              HasSubstr("nothing shows that 3 of 4 workers live"));
  Wait(10, {"a", "b", "c", "d"});
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(Count("losses_released"), 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).reason(), "");
}

TEST_F(HeldTest, WhoIsNotHeardWhenMostAreIsGivenUpThen) {
  Wait(0.2, {"a", "b", "c"});
  ASSERT_EQ(Count("losses_released"), 1);
  Wait(2, {"a", "b", "c"});  // Half a lease: what it said may be on its way.
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(std::get<std::string>(*Logged("worker_lost").Find("worker")), "d");
}

TEST_F(HeldTest, AfterItsTimeAllAreGivenUpInOneRecovery) {
  Wait(Seconds(job_.policy.mass_silence), {"a"});
  EXPECT_EQ(Count("worker_lost"), 3);
  EXPECT_EQ(Count("losses_released"), 1);
  EXPECT_EQ(stored_.generation_counter, 3) << "one fence, one generation";
}

// A rack has lost its power: a worker's connection to one of it breaks.
TEST_F(HeldTest, WhatAWorkerSaysOfAnotherEndsIt) {
  for (const char* lost : {"b", "c", "d"}) {
    From("a", [&](wire::FromWorker& message) {
      message.mutable_peer_lost()->set_generation(1);
      message.mutable_peer_lost()->set_peer(lost);
    });
  }
  Wait(2, {"a"});
  EXPECT_EQ(Count("worker_lost"), 3);
  EXPECT_EQ(stored_.generation_counter, 3);
}

class LateTest : public HeldTest {
 protected:
  LateTest() {
    Wait(1, {"a", "b", "c", "d"});
    From("a", [](wire::FromWorker& message) {
      message.mutable_peer_lost()->set_generation(1);
      message.mutable_peer_lost()->set_peer("a");
    });
    Wait(Seconds(job_.policy.reply_timeout) + 3, {"a", "b", "c", "d"});
  }
};

// What they were asked did not come to them: one answers when it comes, and so will the others.
TEST_F(LateTest, WhenMostHaveAnsweredTheOthersHaveTimeAgain) {
  ASSERT_EQ(Count("losses_held"), 2) << "first for their silence";
  ASSERT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
  const int64_t fence = Last("a", wire::ToWorker::kHalt)->halt().generation();
  for (const char* name : {"a", "b", "c"}) {
    Halted(name, fence, 0, 0, false);
  }
  EXPECT_EQ(Count("losses_released"), 2);
  Wait(1, {"a", "b", "c", "d"});
  EXPECT_EQ(Count("worker_lost"), 0);
  Wait(5, {"a", "b", "c", "d"});
  ASSERT_EQ(Count("worker_lost"), 1);
  EXPECT_EQ(std::get<std::string>(*Logged("worker_lost").Find("worker")), "d");
}

}  // namespace
}  // namespace heddle::elastic
