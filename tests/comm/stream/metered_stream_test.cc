// A stream behind an emulated link: every byte counted once, held back while the link owes, and
// others told of who waits.
#include "comm/stream/metered_stream.h"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "comm/stream/frame.h"
#include "tests/comm/message/exchange.h"

namespace heddle::comm {
namespace {

class MeteredStreamTest : public testing::Test {
 protected:
  MeteredStreamTest()
      : connection_(new TestConnection(false)),
        stream_(std::unique_ptr<Connection>(connection_),
                {.traffic_class = TrafficClass::kUrgent,
                 .outgoing = outgoing_,
                 .incoming = incoming_,
                 .sent_bytes = &sent_,
                 .received_bytes = &received_}) {}

  /// So much that it is not paid in the time of a test.
  static void PutInDebt(TokenBucket& bucket) {
    bucket.SetRate(1000, Now());
    bucket.Charge(10'000'000, Now());
  }
  /// Whether bulk holds back, because urgent traffic waits there.
  static bool UrgentWaits(TokenBucket& bucket) {
    const Time now = Now();
    return bucket.ReadyAt(TrafficClass::kBulk, now) != bucket.ReadyAt(TrafficClass::kUrgent, now);
  }
  Result<size_t> Read(size_t most) {
    buffer_.assign(most, std::byte{});
    return stream_.Read(buffer_);
  }

  TestConnection* const connection_;
  const std::shared_ptr<TokenBucket> outgoing_ = std::make_shared<TokenBucket>();
  const std::shared_ptr<TokenBucket> incoming_ = std::make_shared<TokenBucket>();
  metrics::Counter sent_;
  metrics::Counter received_;
  Bytes buffer_;
  MeteredStream stream_;
};

TEST_F(MeteredStreamTest, EveryByteIsCountedOnce) {
  connection_->incoming = Bytes(10);
  EXPECT_EQ(*Read(4), 4U);
  EXPECT_EQ(received_.Value(), 4);
  EXPECT_EQ(stream_.moved(), 4U);
  EXPECT_EQ(*Read(20), 6U);
  EXPECT_EQ(received_.Value(), 10);
  EXPECT_TRUE(stream_.MayWrite());
  stream_.Wrote(7);
  EXPECT_EQ(sent_.Value(), 7);
  EXPECT_EQ(stream_.bytes_sent(), 7);
  EXPECT_EQ(stream_.moved(), 17U);
  stream_.CountShared(100, 1000);
  EXPECT_EQ(sent_.Value(), 107);
  EXPECT_EQ(stream_.bytes_sent(), 107);
  EXPECT_EQ(received_.Value(), 1010);
  EXPECT_EQ(stream_.moved(), 17U) << "they went beside the connection";
}

// To ask a socket again that has just given all it had costs a call for nothing.
TEST_F(MeteredStreamTest, WhoGaveLessThanWasAskedForIsNotAskedAgain) {
  connection_->incoming = Bytes(4);
  EXPECT_EQ(*Read(4), 4U) << "there may be more";
  connection_->incoming = Bytes(3);
  EXPECT_EQ(*Read(4), 3U);
  connection_->incoming = Bytes(3);
  EXPECT_EQ(*Read(4), 0U);
  stream_.BeginReading();
  EXPECT_EQ(*Read(4), 3U);
}

TEST_F(MeteredStreamTest, OneReadIsAPieceAtMost) {
  connection_->incoming = Bytes(kChunkBytes + 10);
  EXPECT_EQ(*Read(kChunkBytes + 10), kChunkBytes);
  incoming_->SetRate(1000, Now());
  EXPECT_EQ(*Read(kChunkBytes), 10U);
  connection_->incoming = Bytes(5000);
  stream_.BeginReading();
  incoming_->SetRate(1000, Now() - std::chrono::hours(1));
  EXPECT_EQ(stream_.PieceBytes(5000), 5000U) << "the other direction has no limit";
  outgoing_->SetRate(1000, Now());
  EXPECT_EQ(stream_.PieceBytes(5000), 2048U);
}

TEST_F(MeteredStreamTest, ALinkThatOwesHoldsReadingBack) {
  connection_->incoming = Bytes(10);
  PutInDebt(*incoming_);
  const Time before = Now();
  EXPECT_EQ(*Read(4), 0U);
  EXPECT_TRUE(stream_.limited());
  EXPECT_TRUE(stream_.in_limited());
  EXPECT_FALSE(stream_.out_limited());
  EXPECT_TRUE(UrgentWaits(*incoming_));
  const Time resume = stream_.TakeResumeAt();
  EXPECT_GT(resume, before);
  EXPECT_LT(resume, before + std::chrono::hours(4));
  EXPECT_EQ(stream_.TakeResumeAt(), Time::max());
  stream_.BeginReading();
  EXPECT_FALSE(stream_.limited());
  incoming_->SetRate(0, Now());
  EXPECT_EQ(*Read(20), 10U);
  incoming_->SetRate(1000, Now());
  EXPECT_FALSE(UrgentWaits(*incoming_)) << "nothing is left to wait for it";
}

TEST_F(MeteredStreamTest, WhatAGonePeerSentIsReadWhateverTheLinkOwes) {
  connection_->incoming = Bytes(10);
  PutInDebt(*incoming_);
  stream_.PeerHungUp();
  EXPECT_EQ(*Read(20), 10U);
  EXPECT_FALSE(stream_.limited());
}

TEST_F(MeteredStreamTest, ALinkThatOwesHoldsWritingBack) {
  PutInDebt(*outgoing_);
  const Time before = Now();
  EXPECT_FALSE(stream_.MayWrite());
  EXPECT_TRUE(stream_.limited());
  EXPECT_TRUE(stream_.out_limited());
  EXPECT_FALSE(stream_.in_limited());
  EXPECT_TRUE(UrgentWaits(*outgoing_));
  EXPECT_FALSE(UrgentWaits(*incoming_));
  EXPECT_GT(stream_.TakeResumeAt(), before);
  EXPECT_FALSE(stream_.MayWrite());
  stream_.EndWriting();
  EXPECT_FALSE(UrgentWaits(*outgoing_)) << "it waited once, though it asked twice";
  stream_.BeginWriting();
  EXPECT_FALSE(stream_.limited());
}

TEST_F(MeteredStreamTest, WhatIsReadAndWrittenIsCharged) {
  incoming_->SetRate(1000, Now());
  outgoing_->SetRate(1000, Now());
  connection_->incoming = Bytes(2000);
  EXPECT_EQ(*Read(2000), 2000U);
  EXPECT_TRUE(stream_.MayWrite());
  stream_.Wrote(3000);
  const Time now = Now();
  EXPECT_GT(incoming_->ReadyAt(TrafficClass::kUrgent, now), now + std::chrono::seconds(1));
  EXPECT_GT(outgoing_->ReadyAt(TrafficClass::kUrgent, now), now + std::chrono::seconds(2));
}

TEST_F(MeteredStreamTest, AClosedStreamWaitsForNothing) {
  PutInDebt(*incoming_);
  PutInDebt(*outgoing_);
  EXPECT_EQ(*Read(1), 0U);
  EXPECT_FALSE(stream_.MayWrite());
  EXPECT_TRUE(UrgentWaits(*incoming_) && UrgentWaits(*outgoing_));
  stream_.Close();
  EXPECT_FALSE(UrgentWaits(*incoming_));
  EXPECT_FALSE(UrgentWaits(*outgoing_));
}

TEST_F(MeteredStreamTest, TheEarliestTimeToGoOnCounts) {
  const Time now = Now();
  stream_.ResumeAt(now);
  stream_.ResumeAt(now + std::chrono::seconds(1));
  EXPECT_EQ(stream_.TakeResumeAt(), now);
  stream_.CountMoved(5);
  EXPECT_EQ(stream_.moved(), 5U);
}

}  // namespace
}  // namespace heddle::comm
