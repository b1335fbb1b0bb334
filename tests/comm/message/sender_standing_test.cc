// The same of the sending half, and of what a device carries; and what each frame says.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/message/standing.h"

namespace heddle::comm {
namespace {

/// Of the sender.
struct Sends {
  bool output = false;
  bool sending = false;
  bool asks = false;
  bool has = false;
  friend bool operator==(const Sends&, const Sends&) = default;
};
void PrintTo(const Sends& sends, std::ostream* out) {
  *out << "output " << sends.output << ", sending " << sends.sending << ", asks " << sends.asks
       << ", has " << sends.has;
}
Sends SenderOf(const Exchange& exchange) {
  EXPECT_FALSE(exchange.sender.Has(Tagged(99)));
  return {.output = exchange.sender.HasOutput(),
          .sending = exchange.sender.sending(),
          .asks = exchange.sender.asks(),
          .has = exchange.sender.Has(Tagged(1))};
}

TEST(SenderStandingTest, ASmallMessageFromItsQueueToItsLastByte) {
  Exchange exchange;
  EXPECT_EQ(SenderOf(exchange), Sends{});
  const Bytes data(kSmall);
  const auto sent = exchange.Send(1, data);
  EXPECT_EQ(SenderOf(exchange), (Sends{.output = true, .has = true}));
  exchange.connection().room = 10;
  EXPECT_TRUE(*exchange.sender.Pump());
  EXPECT_EQ(SenderOf(exchange), (Sends{.output = true, .sending = true, .has = true}));
  EXPECT_TRUE(*exchange.sender.Pump()) << "there is no room";
  exchange.connection().room = kLarge;
  EXPECT_FALSE(*exchange.sender.Pump());
  EXPECT_EQ(SenderOf(exchange), Sends{});
  EXPECT_TRUE(sent->Done());
  EXPECT_EQ(exchange.bytes_counted(), kSmall + sizeof(FrameHeader));
}

TEST(SenderStandingTest, WhatIsQueuedOrHalfWrittenIsTaken) {
  for (const size_t room : {size_t{0}, size_t{10}}) {
    Exchange exchange;
    Bytes data(kSmall, std::byte{5});
    const auto sent = exchange.Send(1, data);
    exchange.connection().room = room;
    EXPECT_TRUE(*exchange.sender.Pump());
    ExpectTaken(exchange, sent);
    EXPECT_FALSE(exchange.sender.Has(Tagged(1)));
    data.assign(kSmall, std::byte{9});  // Its owner's again.
    exchange.connection().room = kLarge;
    const auto frames = exchange.Sent();
    ASSERT_EQ(frames.size(), 1U) << "a frame that has begun is finished";
    EXPECT_EQ(frames[0].payload, Bytes(kSmall, std::byte{5}));
  }
}

TEST(SenderStandingTest, AMessageThatAsksWaitsForItsAnswerAndGoesInChunks) {
  Exchange exchange;
  const Bytes data(kLarge);
  const auto sent = exchange.Send(1, data);
  ASSERT_EQ(exchange.SentHeaders().size(), 1U);
  EXPECT_EQ(SenderOf(exchange), (Sends{.asks = true, .has = true}));
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
  EXPECT_EQ(SenderOf(exchange), (Sends{.output = true, .has = true}));
  exchange.connection().room = kChunkBytes + sizeof(FrameHeader);
  EXPECT_TRUE(*exchange.sender.Pump());
  EXPECT_EQ(SenderOf(exchange), (Sends{.output = true, .sending = true, .has = true}));
  ExpectTaken(exchange, sent);
  EXPECT_FALSE(sent->Done());
}

TEST(SenderStandingTest, AGrantedMessageThatWaitsForItsTurnIsTaken) {
  Exchange exchange;
  const Bytes data(kLarge);
  const auto sent = exchange.Send(1, data);
  exchange.SentHeaders();
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
  ExpectTaken(exchange, sent);
  EXPECT_EQ(SenderOf(exchange), Sends{});
}

TEST(SenderStandingTest, AMessageThatAsksIsTakenAndItsAnswerStillMayCome) {
  Exchange exchange;
  const Bytes data(kLarge);
  const auto sent = exchange.Send(1, data);
  exchange.SentHeaders();
  ExpectTaken(exchange, sent);
  EXPECT_EQ(SenderOf(exchange), Sends{});
  EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
  EXPECT_EQ(SenderOf(exchange), Sends{}) << "nobody sends it";
  EXPECT_EQ(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).code(), StatusCode::kDataLoss)
      << "but once";
}

// Of two that ask, one is given up: the other one is none of its business.
TEST(SenderStandingTest, OnlyTheOneThatIsGivenUpGoes) {
  Exchange exchange;
  const Bytes data(kLarge);
  const auto one = exchange.Send(1, data);
  const auto other = exchange.Send(2, data);
  const auto waiting = exchange.Send(3, data);
  exchange.connection().room = 2 * sizeof(FrameHeader);
  EXPECT_TRUE(*exchange.sender.Pump());
  exchange.Cancel(*one);
  EXPECT_FALSE(exchange.sender.Has(Tagged(1)));
  EXPECT_TRUE(exchange.sender.Has(Tagged(2)));
  EXPECT_TRUE(exchange.sender.Has(Tagged(3)));
  EXPECT_FALSE(other->Done());
  EXPECT_FALSE(waiting->Done());
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 2, 0)).ok());
  exchange.Cancel(*other);
  EXPECT_FALSE(exchange.sender.Has(Tagged(2)));
  exchange.Cancel(*waiting);
  EXPECT_FALSE(exchange.sender.Has(Tagged(3)));
}

TEST(SenderStandingTest, EveryFrameTellsHowManyTheOtherClassHasSent) {
  Exchange exchange;
  auto& sent = exchange.frames().sent;
  sent[IndexOf(TrafficClass::kUrgent)].store(41);
  exchange.Send(1, Bytes());
  exchange.sender.QueueControl(FrameKind::kCredit, 0, 5);
  const auto headers = exchange.SentHeaders();
  ASSERT_EQ(headers.size(), 2U);
  for (const FrameHeader& header : headers) {
    EXPECT_EQ(header.other_class, 41);
    EXPECT_EQ(header.generation, kExchangeGeneration);
    EXPECT_EQ(header.magic, FrameHeader::kMagic);
  }
  EXPECT_EQ(sent[IndexOf(TrafficClass::kBulk)].load(), 2);
  EXPECT_EQ(sent[IndexOf(TrafficClass::kUrgent)].load(), 41);
}

TEST(SenderStandingTest, ControlSaysWhatWasAskedAndNotMoreTextThanMayTravel) {
  Exchange exchange;
  FrameHeader header;
  header.kind = FrameKind::kAbort;
  exchange.sender.QueueControl(header, std::string(kAbortTextBytes + 1, 'x'));
  exchange.sender.QueueControl(FrameKind::kReject, 8, 900);
  EXPECT_TRUE(exchange.sender.HasOutput());
  const auto frames = exchange.Sent();
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].header.length, kAbortTextBytes);
  EXPECT_EQ(frames[0].payload, Bytes(kAbortTextBytes, std::byte{'x'}));
  EXPECT_EQ(frames[1].header.kind, FrameKind::kReject);
  EXPECT_EQ(frames[1].header.id, 8U);
  EXPECT_EQ(frames[1].header.total, 900U);
  EXPECT_EQ(frames[1].header.length, 0U);
  exchange.sender.QueueControl(FrameKind::kReject, 9, 900);
  exchange.sender.ClearControl();
  EXPECT_TRUE(exchange.Sent().empty());
}

// Else all that are on their way over a slow link would end at its end, and none would be seen to.
TEST(SenderStandingTest, AMessageThatHasBegunIsSentToItsEndBeforeTheNextOne) {
  Exchange exchange;
  const Bytes data(kLarge);
  for (const uint64_t tag : {1U, 2U, 3U}) {
    exchange.Send(tag, data);
  }
  ASSERT_EQ(exchange.SentHeaders().size(), 3U);
  for (const uint64_t id : {2U, 1U, 3U}) {
    ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, id, 0)).ok());
  }
  std::vector<uint64_t> begun;
  for (const FrameHeader& header : exchange.SentHeaders()) {
    ASSERT_EQ(header.kind, FrameKind::kData);
    if (begun.empty() || begun.back() != header.id) {
      begun.push_back(header.id);
    }
  }
  EXPECT_EQ(begun, (std::vector<uint64_t>{2, 1, 3})) << "in the order of their grants";
}

// 2 MiB, then others have their turn, and the loop comes again at once.
TEST(SenderStandingTest, OnePumpHasItsBudget) {
  Exchange exchange;
  const Bytes data(4 * kLarge);
  const auto sent = exchange.Send(1, data);
  exchange.SentHeaders();
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
  exchange.stream().TakeResumeAt();
  EXPECT_TRUE(*exchange.sender.Pump());
  EXPECT_GE(exchange.connection().written.size(), 2 * kLarge);
  EXPECT_LE(exchange.connection().written.size(), 2 * kLarge + kChunkBytes + sizeof(FrameHeader));
  EXPECT_LE(exchange.stream().TakeResumeAt(), Now());
  EXPECT_TRUE(*exchange.sender.Pump());
  EXPECT_FALSE(*exchange.sender.Pump());
  EXPECT_TRUE(sent->Done());
  EXPECT_EQ(exchange.connection().written.size(), 4 * kLarge + 16 * sizeof(FrameHeader));
}

/// Over a device that carries from buffer to buffer.
class PlacingStandingTest : public testing::Test {
 protected:
  void SetUp() override {
    buffer_ = *regions_->Allocate(kLarge);
    exchange_ = std::make_unique<Exchange>(regions_);
    other_ = *regions_->Allocate(kLarge);
  }
  std::shared_ptr<Operation> Granted(uint64_t key) {
    const auto sent = exchange_->Send(1, buffer_.bytes());
    exchange_->SentHeaders();
    FrameHeader grant = FrameOf(FrameKind::kGrant, 1, 0);
    grant.tag = 4096;
    grant.space = key;
    EXPECT_TRUE(exchange_->Give(grant).ok());
    return sent;
  }

  const std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>(nullptr);
  SharedBuffer buffer_;
  SharedBuffer other_;
  std::unique_ptr<Exchange> exchange_;
};

TEST_F(PlacingStandingTest, AMessageInTheDeviceIsInFlightUntilItHasArrived) {
  const auto sent = Granted(6);
  EXPECT_FALSE(exchange_->sender.IsPlacing()) << "the device has nothing of it yet";
  EXPECT_TRUE(exchange_->sender.Has(Tagged(1)));
  EXPECT_FALSE(Placement::IsInDevice(*sent));
  EXPECT_EQ(sent->remote.address, 4096U);
  EXPECT_EQ(sent->remote.key, 5U);
  EXPECT_EQ(exchange_->SentHeaders().size(), 1U);
  EXPECT_TRUE(exchange_->sender.IsPlacing());
  EXPECT_TRUE(Placement::IsInDevice(*sent));
  EXPECT_FALSE(exchange_->sender.Has(Tagged(1))) << "it is the device's";
  EXPECT_TRUE(exchange_->placement.Has(Tagged(1)));
  EXPECT_FALSE(exchange_->placement.Has(Tagged(2)));
  EXPECT_FALSE(exchange_->placement.empty());
  EXPECT_EQ(exchange_->bytes_counted(), 2.0 * kLarge + 3 * sizeof(FrameHeader))
      << "as sent, as placed, and two frames sent and one received";
  ExpectTaken(*exchange_, sent);
  EXPECT_TRUE(exchange_->placement.empty());
}

TEST_F(PlacingStandingTest, AMessageThatHasBegunIsPlacedToItsEndBeforeTheNextOne) {
  exchange_->Send(1, buffer_.bytes());
  exchange_->Send(2, other_.bytes());
  exchange_->SentHeaders();
  for (const uint64_t id : {1U, 2U}) {
    FrameHeader grant = FrameOf(FrameKind::kGrant, id, 0);
    grant.tag = 4096;
    grant.space = 6;
    ASSERT_TRUE(exchange_->Give(grant).ok());
  }
  exchange_->connection().room = 0;
  EXPECT_TRUE(*exchange_->sender.Pump()) << "the frame that tells of the first one has no room";
  EXPECT_EQ(exchange_->connection().given, kLarge);
}

TEST_F(PlacingStandingTest, WhatIsForgottenInTheDeviceIsNotEndedByIt) {
  const auto sent = Granted(6);
  exchange_->SentHeaders();
  exchange_->placement.Forget(*sent);
  EXPECT_TRUE(exchange_->placement.empty());
  exchange_->connection().arrived = kLarge;
  exchange_->placement.EndArrived();
  EXPECT_FALSE(sent->Done());
  exchange_->placement.Withdraw();
  EXPECT_EQ(exchange_->connection().withdrawn, 1);
}

TEST_F(PlacingStandingTest, AnExposedReceiveIsInFlightUntilItIsPlaced) {
  EXPECT_FALSE(exchange_->receiver.IsExposed());
  const auto received = exchange_->Recv(1, buffer_.bytes());
  ASSERT_TRUE(exchange_->Give(RequestFrame(1, 1, kLarge)).ok());
  EXPECT_TRUE(exchange_->receiver.IsExposed());
  EXPECT_TRUE(Placement::IsInDevice(*received));
  const uint64_t moved = exchange_->stream().moved();
  ASSERT_TRUE(exchange_->Give(FrameOf(FrameKind::kPlaced, 1, 0)).ok());
  EXPECT_TRUE(received->Done());
  EXPECT_FALSE(exchange_->receiver.IsExposed());
  EXPECT_EQ(exchange_->stream().moved(), moved + kLarge + sizeof(FrameHeader));
  EXPECT_EQ(Of(*exchange_, 1), Stands{});
  EXPECT_TRUE(exchange_->Give(FrameOf(FrameKind::kPlaced, 1, 0)).ok()) << "of one that is over";
}

// Small messages, and those of ordinary memory, stay in the stream.
TEST_F(PlacingStandingTest, OnlyLargeMessagesOfSharedBuffersArePlaced) {
  const auto may_place = [&](std::span<const std::byte> bytes) {
    return exchange_->placement.MayPlace(*Exchange::MakeSend(1, bytes));
  };
  EXPECT_TRUE(may_place(buffer_.bytes()));
  EXPECT_TRUE(may_place(buffer_.bytes().first(kPlacedBytes)));
  EXPECT_FALSE(may_place(buffer_.bytes().first(kPlacedBytes - 1)));
  EXPECT_FALSE(may_place(Bytes(kLarge)));
  Exchange plain;
  EXPECT_FALSE(plain.placement.MayPlace(*Exchange::MakeSend(1, buffer_.bytes())));
  // The receiver's side: no place is named.
  for (const size_t size : {kPlacedBytes - 1, kPlacedBytes}) {
    auto recv = Exchange::MakeRecv(1, buffer_.bytes().first(size));
    FrameHeader grant;
    exchange_->placement.Expose(*recv, grant);
    EXPECT_EQ(recv->exposed, size >= kPlacedBytes);
    EXPECT_EQ(grant.tag, size >= kPlacedBytes ? 4096U : 0U);
    EXPECT_EQ(grant.space, size >= kPlacedBytes ? 6U : 0U);
  }
  Bytes own(kLarge);
  auto recv = Exchange::MakeRecv(1, own);
  FrameHeader grant;
  exchange_->placement.Expose(*recv, grant);
  EXPECT_FALSE(recv->exposed);
  EXPECT_EQ(grant.space, 0U);
}

}  // namespace
}  // namespace heddle::comm
