// What two members say to each other of waits that last, without a network or a clock.
#include "comm/group/peer_reports.h"

#include <gtest/gtest.h>

#include "comm/group/call_diagnosis.h"
#include "comm/message/call_signature.h"

namespace heddle::comm {
namespace {

constexpr Duration kMoment = std::chrono::milliseconds(1);

CallNumber Call(CallKind kind, uint64_t ordinal) {
  return {.tag = 9,
          .space = SpaceOf(EncodeSignature({.kind = kind})),
          .ordinal = ordinal,
          .group = 77,
          .blamed = -1,
          .distance = 0,
          .given_up = false};
}

class PeerReportsTest : public testing::Test {
 protected:
  /// The peer says that it waits.
  void Hear(const CallNumber& call, Time now) {
    PeerReports peer(std::make_shared<LastingWaits>());
    const auto report = peer.NextReport(call, true, now);
    ASSERT_TRUE(report.has_value());
    reports_.Note(*report, now);
  }

  const std::shared_ptr<LastingWaits> lasting_ = std::make_shared<LastingWaits>();
  PeerReports reports_{lasting_};
  const Time now_ = Now();
};

TEST_F(PeerReportsTest, AReportHasTheBitsOfTheWire) {
  CallNumber call = Call(CallKind::kBarrier, 5);
  call.blamed = 3;
  call.distance = 2;
  call.given_up = true;
  const auto report = reports_.NextReport(call, true, now_);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->kind, FrameKind::kWaiting);
  EXPECT_EQ(report->tag, 9U);
  EXPECT_EQ(report->id, 5U);
  EXPECT_EQ(report->total, 77U);
  // From the lowest bit: who, 18 bits; how far, 17; given up, 1; the signature, 22: a barrier's
  // kind is the topmost four of them.
  EXPECT_EQ(report->space,
            uint64_t{4} | uint64_t{2} << 18 | uint64_t{1} << 35 | uint64_t{1} << (36 + 18));
}

TEST_F(PeerReportsTest, AWaitInThisCallOrOneBeforeCounts) {
  CallNumber call = Call(CallKind::kBarrier, 5);
  EXPECT_FALSE(reports_.WaitIn(call, now_).waits) << "nothing was heard";
  CallNumber said = Call(CallKind::kAllReduce, 4);
  said.blamed = 2;
  said.distance = 1;
  Hear(said, now_);
  const PeerReports::Wait wait = reports_.WaitIn(call, now_);
  EXPECT_TRUE(wait.waits);
  EXPECT_EQ(wait.blamed, 2);
  EXPECT_EQ(wait.distance, 1);
  call.ordinal = 3;
  EXPECT_FALSE(reports_.WaitIn(call, now_).waits) << "the peer is ahead and owes nothing";
  call.ordinal = 0;
  EXPECT_FALSE(reports_.WaitIn(call, now_).waits) << "it is not counted";
  call.ordinal = 5;
  call.group = 78;
  EXPECT_FALSE(reports_.WaitIn(call, now_).waits) << "it is another group's";
}

TEST_F(PeerReportsTest, WhatWasSaidHoldsForAWhileAndALastWordForEver) {
  CallNumber call = Call(CallKind::kBarrier, 5);
  Hear(call, now_);
  EXPECT_TRUE(reports_.WaitIn(call, now_ + std::chrono::milliseconds(699)).waits);
  EXPECT_FALSE(reports_.WaitIn(call, now_ + std::chrono::milliseconds(701)).waits);
  call.given_up = true;
  Hear(call, now_);
  EXPECT_TRUE(reports_.WaitIn(call, now_ + std::chrono::hours(1)).waits);
}

TEST_F(PeerReportsTest, AnotherCallInPlaceOfThisOneIsFound) {
  Hear(Call(CallKind::kAllReduce, 5), now_);
  EXPECT_EQ(reports_.FindOtherCall(Call(CallKind::kBarrier, 5)),
            EncodeSignature({.kind = CallKind::kAllReduce}));
  EXPECT_FALSE(reports_.FindOtherCall(Call(CallKind::kAllReduce, 5)).has_value()) << "the same";
  EXPECT_FALSE(reports_.FindOtherCall(Call(CallKind::kBarrier, 6)).has_value()) << "a later one";
  EXPECT_FALSE(reports_.FindOtherCall(Call(CallKind::kBarrier, 4)).has_value()) << "an earlier one";
}

TEST_F(PeerReportsTest, TheLatestWordOfAGroupCounts) {
  Hear(Call(CallKind::kAllReduce, 5), now_);
  Hear(Call(CallKind::kBarrier, 5), now_);
  EXPECT_FALSE(reports_.FindOtherCall(Call(CallKind::kBarrier, 5)).has_value());
}

TEST_F(PeerReportsTest, OldWordsGoWhenThereAreTooMany) {
  CallNumber call = Call(CallKind::kBarrier, 5);
  for (call.tag = 1; call.tag <= 17; ++call.tag) {
    Hear(call, now_);
  }
  call.tag = 1;
  EXPECT_FALSE(reports_.WaitIn(call, now_).waits);
  call.tag = 2;
  EXPECT_TRUE(reports_.WaitIn(call, now_).waits);
}

TEST_F(PeerReportsTest, NewsIsSaidAtOnceAndTheSameNowAndThen) {
  CallNumber call = Call(CallKind::kBarrier, 5);
  EXPECT_TRUE(reports_.NextReport(call, true, now_).has_value());
  EXPECT_FALSE(reports_.NextReport(call, true, now_ + kMoment).has_value());
  call.blamed = 1;
  EXPECT_TRUE(reports_.NextReport(call, true, now_ + kMoment).has_value());
  EXPECT_FALSE(
      reports_.NextReport(call, true, now_ + kMoment + std::chrono::milliseconds(290)).has_value());
  EXPECT_TRUE(
      reports_.NextReport(call, true, now_ + kMoment + std::chrono::milliseconds(291)).has_value());
}

TEST_F(PeerReportsTest, WhoIsNotConcernedHearsNothing) {
  CallNumber call = Call(CallKind::kBarrier, 5);
  EXPECT_FALSE(reports_.NextReport(call, false, now_).has_value());
  Hear(Call(CallKind::kAllReduce, 4), now_);
  EXPECT_TRUE(reports_.NextReport(call, false, now_).has_value()) << "the peer waits, too";
  PeerReports silent(lasting_);
  call.given_up = true;
  EXPECT_TRUE(silent.NextReport(call, false, now_).has_value()) << "a last word";
}

TEST_F(PeerReportsTest, OnlyNewsNudges) {
  Work::State wait(std::chrono::minutes(10));
  const LastingWaits::Entry entry(*lasting_, wait);
  const auto is_nudged_until = [&](Time until) {
    wait.WaitNudged(until, Now());
    return Now() < until;
  };
  Hear(Call(CallKind::kBarrier, 5), now_);
  EXPECT_TRUE(is_nudged_until(After(std::chrono::minutes(10))));
  Hear(Call(CallKind::kBarrier, 5), now_);
  EXPECT_FALSE(is_nudged_until(After(std::chrono::milliseconds(100))));
}

UnexpectedMessage Unexpected(CallKind kind, uint16_t other_class) {
  return {.key = {.tag = 9,
                  .space = Call(kind, 0).space | uint64_t{1}
                                                     << (kSignatureBits + kMajorBits + kMinorBits)},
          .other_class = other_class};
}

TEST(FindOtherCallTest, ATrafficClassThatWaitsProvesByItself) {
  Channel::Snapshot snapshot{
      .open = true, .waits = true, .unexpected = {Unexpected(CallKind::kAllToAll, 5)}};
  EXPECT_EQ(FindOtherCall(snapshot, false, 0), EncodeSignature({.kind = CallKind::kAllToAll}));
  snapshot.waits = false;
  EXPECT_FALSE(FindOtherCall(snapshot, false, 5).has_value()) << "nobody waits";
  EXPECT_FALSE(FindOtherCall(snapshot, true, 4).has_value()) << "a frame is under way";
  EXPECT_TRUE(FindOtherCall(snapshot, true, 5).has_value());
  snapshot.unexpected.insert(snapshot.unexpected.begin(), Unexpected(CallKind::kBarrier, 6));
  EXPECT_EQ(FindOtherCall(snapshot, true, 5), EncodeSignature({.kind = CallKind::kAllToAll}))
      << "the one that is proved";
}

TEST(FindOtherCallTest, WhatFormsTheGroupBelongsToItsCall) {
  const CallNumber call = Call(CallKind::kBarrier, 5);
  EXPECT_TRUE(OfCall({.tag = 77, .space = kFormingSpace | 1}, call));
  EXPECT_FALSE(OfCall({.tag = 78, .space = kFormingSpace | 1}, call));
  EXPECT_FALSE(OfOtherCall({.tag = 9, .space = kFormingSpace | 1}, call));
  EXPECT_FALSE(OfOtherCall({.tag = 9, .space = 0}, call)) << "a user's message";
  EXPECT_FALSE(OfOtherCall({.tag = 8, .space = Unexpected(CallKind::kAllToAll, 0).key.space}, call))
      << "another tag";
  EXPECT_TRUE(OfOtherCall(Unexpected(CallKind::kAllToAll, 0).key, call));
  EXPECT_FALSE(OfOtherCall(Unexpected(CallKind::kBarrier, 0).key, call));
}

}  // namespace
}  // namespace heddle::comm
