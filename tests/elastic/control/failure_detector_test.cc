// Who is lost for saying nothing, and who is not.
#include "elastic/control/membership/failure_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/protocol/version.h"

namespace heddle::elastic {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// a, b and c are members of generation 7, d stands by; all were heard just now.
class FailureDetectorTest : public testing::Test {
 protected:
  FailureDetectorTest() {
    DurableGeneration generation{.number = 7, .plan = {}, .members = {}};
    for (const char name : {'a', 'b', 'c', 'd'}) {
      wire::Hello hello;
      hello.set_name(std::string(1, name));
      hello.set_incarnation(std::string(16, name));
      hello.set_protocol_version(kProtocolVersion);
      (*hello.mutable_arithmetic())["processor"] = "EPYC";
      roster_.Join(name, hello, now_);
      if (name != 'd') {
        generation.members[std::string(1, name)] = std::string(16, name);
      }
    }
    generations_.Begin(generation);
    failure_detector_.NoteStep(7, 0, now_);
  }
  void NoteHeard(const std::string& names) {
    for (const char name : names) {
      failure_detector_.NoteHeard(roster_, policy_, now_);
      roster_.NoteHeard(name, now_);
    }
  }
  // Who is lost at this moment.
  std::vector<std::string> Lost() {
    const bool due = failure_detector_.NextDeadline(roster_, step_seconds_, policy_) <= now_;
    std::vector<std::string> names;
    const FailureDetector::Verdict verdict = failure_detector_.Judge({.roster = roster_,
                                                                      .generations = generations_,
                                                                      .involved = involved_,
                                                                      .steps_run = steps_run_,
                                                                      .step_seconds = step_seconds_,
                                                                      .policy = policy_,
                                                                      .now = now_});
    absent_ = verdict.absent;
    for (const Loss& loss : verdict.lost) {
      EXPECT_TRUE(due) << "nobody would have looked";
      EXPECT_TRUE(loss.rejoins);
      names.push_back(loss.worker);
      reason_ = loss.reason;
    }
    return names;
  }
  // Time passes in which `names` are heard; who is lost meanwhile.
  std::vector<std::string> Wait(Duration duration, const std::string& names) {
    std::vector<std::string> lost;
    for (const Time until = now_ + duration; now_ < until && lost.empty();) {
      now_ += std::min<Duration>(policy_.heartbeat, until - now_);
      NoteHeard(names);
      lost = Lost();
    }
    return lost;
  }
  void Step(int64_t step) { failure_detector_.NoteStep(7, step, now_); }

  JobPolicy policy_;
  Time now_{seconds(100)};
  Roster roster_;
  Generations generations_{7};
  FailureDetector failure_detector_;
  Outbox out_{[] { return DurableState(); }};
  std::set<std::string> involved_;
  std::set<std::string> absent_;
  bool steps_run_ = true;
  double step_seconds_ = 0.1;
  std::string reason_;
};

TEST_F(FailureDetectorTest, ASilentMemberIsLostWithItsLeaseWhenNoStepIsCompletedEither) {
  EXPECT_THAT(Wait(policy_.lease - Duration(1), "acd"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "acd"), ElementsAre("b"));
  EXPECT_EQ(reason_, "no heartbeat for 3.0 s");
}

TEST_F(FailureDetectorTest, StepsProveThatASilentMemberLives) {
  for (int64_t step = 1; step <= 60; ++step) {
    EXPECT_THAT(Wait(seconds(1), "ad"), IsEmpty()) << step;
    Step(step);
  }
  EXPECT_THAT(Wait(policy_.lease - Duration(1), "ad"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "ad"), ElementsAre("b", "c"));
}

TEST_F(FailureDetectorTest, AStepThatIsSaidAgainProvesNothing) {
  EXPECT_THAT(Wait(seconds(2), "acd"), IsEmpty());
  Step(5);
  EXPECT_THAT(Wait(seconds(2), "acd"), IsEmpty());
  Step(5);
  Step(4);
  failure_detector_.NoteStep(6, 99, now_);
  EXPECT_THAT(Wait(seconds(1) - Duration(1), "acd"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "acd"), ElementsAre("b"));
}

TEST_F(FailureDetectorTest, AStepMayTakeThreeTimesItsUsualTime) {
  step_seconds_ = 4;
  EXPECT_THAT(Wait(seconds(12) - Duration(1), "acd"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "acd"), ElementsAre("b"));
}

TEST_F(FailureDetectorTest, AMemberThatOnlyItsPeersVouchForIsNotWaitedForForEver) {
  policy_.cut_off_timeout = seconds(30);
  int64_t step = 0;
  while (now_ < Time(seconds(130))) {
    Step(++step);
    const auto lost = Wait(seconds(1), "acd");
    EXPECT_EQ(lost.empty(), now_ < Time(seconds(130)));
  }
}

TEST_F(FailureDetectorTest, ABrokenStreamIsNoLossWhileOthersTrain) {
  roster_.Disconnect('b', now_);
  EXPECT_THAT(Wait(policy_.lease - Duration(1), "acd"), IsEmpty());
  EXPECT_THAT(absent_, ElementsAre("b"));
  EXPECT_THAT(Wait(Duration(1), "acd"), ElementsAre("b"));
  EXPECT_EQ(reason_, "its connection broke");
}

TEST_F(FailureDetectorTest, StreamsThatAllBreakAreTheCoordinatorsOwnFault) {
  for (const char name : {'a', 'b', 'c', 'd'}) {
    roster_.Disconnect(name, now_);
  }
  EXPECT_THAT(Wait(seconds(60), ""), IsEmpty());
}

TEST_F(FailureDetectorTest, StreamsOfAllMembersThatBreakBesideAStrangerHaveTheirLease) {
  for (const char name : {'a', 'b', 'c'}) {
    roster_.Disconnect(name, now_);
  }
  EXPECT_THAT(Wait(policy_.lease - Duration(1), "d"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "d"), ElementsAre("a", "b", "c"));
}

// Somebody accuses somebody, or a change is under way: nobody's steps speak for it.
TEST_F(FailureDetectorTest, ABrokenStreamHasItsGraceWhenNoStepsRun) {
  steps_run_ = false;
  roster_.Disconnect('b', now_);
  EXPECT_THAT(Wait(policy_.reconnect_grace - Duration(1), "acd"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "acd"), ElementsAre("b"));
}

TEST_F(FailureDetectorTest, WithoutStepsTheLeaseDecides) {
  steps_run_ = false;
  Step(1);
  EXPECT_THAT(Wait(seconds(2), "acd"), IsEmpty());
  Step(2);
  EXPECT_THAT(Wait(seconds(1), "acd"), ElementsAre("b"));
}

TEST_F(FailureDetectorTest, WhoStandsByIsAbsentAndNotLost) {
  for (int64_t step = 1; step <= 60; ++step) {
    EXPECT_THAT(Wait(seconds(1), "abc"), IsEmpty());
    Step(step);
    EXPECT_EQ(absent_.count("d"), step < 3 ? 0 : 1) << step;
  }
  EXPECT_THAT(Wait(Duration(1), "abcd"), IsEmpty());
  EXPECT_THAT(absent_, IsEmpty());
  policy_.cut_off_timeout = seconds(30);
  EXPECT_THAT(Wait(seconds(30) - Duration(1), "abc"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "abc"), ElementsAre("d"));
}

TEST_F(FailureDetectorTest, WhoTakesPartInAChangeIsLostWithItsLease) {
  involved_ = {"d"};
  for (int64_t step = 1; step <= 2; ++step) {
    EXPECT_THAT(Wait(seconds(1), "abc"), IsEmpty());
    Step(step);
  }
  EXPECT_THAT(Wait(seconds(1), "abc"), ElementsAre("d"));
}

// No member is heard, but a stranger is: the coordinator is not cut off.
TEST_F(FailureDetectorTest, MembersThatAllFallSilentBesideAStrangerAreLost) {
  EXPECT_THAT(Wait(policy_.lease - Duration(1), "d"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "d"), ElementsAre("a", "b", "c"));
}

TEST_F(FailureDetectorTest, WhenNobodyIsHeardTheCoordinatorIsCutOff) {
  EXPECT_THAT(Wait(policy_.lease - Duration(1), ""), IsEmpty());
  EXPECT_EQ(failure_detector_.cut_off_since(), std::nullopt);
  EXPECT_THAT(Wait(seconds(60), ""), IsEmpty());
  EXPECT_EQ(failure_detector_.cut_off_since(), Time(seconds(100)));
}

// The first one's lease ends while the last one's does not yet.
TEST_F(FailureDetectorTest, WhoFallsSilentALittleEarlierThanAllOthersIsNotLost) {
  for (const char* names : {"bcd", "cd", "d"}) {
    EXPECT_THAT(Wait(policy_.heartbeat, names), IsEmpty());
  }
  EXPECT_THAT(Wait(seconds(60), ""), IsEmpty());
  EXPECT_EQ(failure_detector_.cut_off_since(), Time(seconds(100)) + 3 * policy_.heartbeat);
}

TEST_F(FailureDetectorTest, AfterThatEverybodyHasTimeToComeBack) {
  EXPECT_THAT(Wait(seconds(60), ""), IsEmpty());
  const Duration grace = policy_.lease + policy_.adopt_extra;
  now_ += seconds(1);
  EXPECT_TRUE(failure_detector_.NoteHeard(roster_, policy_, now_));
  roster_.NoteHeard('a', now_);
  EXPECT_EQ(failure_detector_.cut_off_since(), std::nullopt);
  EXPECT_EQ(failure_detector_.excused_until(), now_ + grace);
  EXPECT_FALSE(failure_detector_.NoteHeard(roster_, policy_, now_)) << "only the first one";
  EXPECT_THAT(Wait(grace - Duration(1), "a"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "a"), ElementsAre("b", "c"));
  EXPECT_THAT(absent_, ElementsAre("d"));
}

TEST_F(FailureDetectorTest, TheCoordinatorIsNotCutOffForEver) {
  policy_.cut_off_timeout = seconds(30);
  EXPECT_THAT(Wait(seconds(30) - Duration(1), ""), IsEmpty());
  EXPECT_TRUE(failure_detector_.cut_off_since());
  EXPECT_THAT(Wait(Duration(1), ""), ElementsAre("a", "b", "c", "d"));
  EXPECT_FALSE(failure_detector_.cut_off_since()) << "what is left goes its way";
}

// A tick that comes late excuses everybody for a while, and tells nothing of who is there.
TEST_F(FailureDetectorTest, WhoIsAbsentStaysSoWhileAllAreExcused) {
  roster_.SetAbsent({"b"});
  failure_detector_.Excuse(now_ + seconds(1));
  now_ += Duration(1);
  NoteHeard("acd");
  EXPECT_THAT(Lost(), IsEmpty());
  EXPECT_THAT(absent_, ElementsAre("b"));
}

// Steps ran when it was looked at last, and speak for nobody any more.
TEST_F(FailureDetectorTest, WhatWasGoneByMayBeLookedAtAnewAtOnce) {
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_THAT(Wait(seconds(1), "acd"), IsEmpty());
    Step(step);
  }
  steps_run_ = false;
  EXPECT_GT(failure_detector_.NextDeadline(roster_, step_seconds_, policy_), now_);
  failure_detector_.Reconsider();
  EXPECT_LE(failure_detector_.NextDeadline(roster_, step_seconds_, policy_), now_);
  EXPECT_THAT(Lost(), ElementsAre("b"));
}

TEST_F(FailureDetectorTest, NobodyIsLostWhoIsExcused) {
  now_ += 10 * policy_.lease;
  failure_detector_.Excuse(now_ + seconds(1));
  failure_detector_.Excuse(now_);
  roster_.NoteHeard('d', now_);
  EXPECT_THAT(Wait(seconds(1) - Duration(1), "d"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "d"), ElementsAre("a", "b", "c"));
}

TEST_F(FailureDetectorTest, AProfileIsDueEvenOfOneThatIsHeard) {
  roster_.Welcome("d", false, Job(), 0, out_);
  roster_.ScheduleProfiles({}, seconds(10), now_, out_);
  EXPECT_THAT(Wait(seconds(10) - Duration(1), "abcd"), IsEmpty());
  EXPECT_THAT(Wait(Duration(1), "abcd"), ElementsAre("d"));
  EXPECT_EQ(reason_, "profiling did not end in time");
}

TEST_F(FailureDetectorTest, WhoIsKnownFromThePredecessorOnlyIsNotMissed) {
  DurableState durable;
  roster_.Store(durable);
  roster_ = Roster();
  roster_.Restore(durable, now_);
  EXPECT_EQ(failure_detector_.NextDeadline(roster_, step_seconds_, policy_), std::nullopt);
  EXPECT_THAT(Wait(10 * policy_.lease, ""), IsEmpty());
  EXPECT_EQ(failure_detector_.cut_off_since(), std::nullopt);
}

}  // namespace
}  // namespace heddle::elastic
