// What a channel's two halves send, and refuse, for each frame of a peer: one directed case a rule.
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/message/exchange.h"

namespace heddle::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Bytes Pattern(size_t size, uint8_t seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(seed + i * 7);
  }
  return bytes;
}

std::vector<FrameKind> KindsOf(const std::vector<FrameHeader>& headers) {
  std::vector<FrameKind> kinds;
  for (const FrameHeader& header : headers) {
    kinds.push_back(header.kind);
  }
  return kinds;
}

Status EndOf(const std::shared_ptr<Operation>& operation) {
  return operation->Done() ? operation->Wait(Now()) : InternalError("still in flight");
}

// --- Credits: every byte of the window that a message takes comes back, once.

constexpr size_t kMessage = 1000;

/// One way of a small message through the receiver.
struct Path {
  std::string name;
  std::function<void(Exchange&, uint64_t tag)> run;
};

void GiveWhole(Exchange& exchange, uint64_t tag) {
  ASSERT_TRUE(exchange.Give(EagerFrame(tag, Pattern(kMessage, 3))).ok());
}
void GiveHalf(Exchange& exchange, uint64_t tag) {
  ASSERT_TRUE(exchange.Give(EagerFrame(tag, Pattern(kMessage, 3)), kMessage / 2).ok());
}
void GiveRest(Exchange& exchange) {
  ASSERT_TRUE(exchange.GiveRest().ok());
}

std::vector<Path> Paths() {
  return {
      {"ReceivePosted",
       [](Exchange& exchange, uint64_t tag) {
         Bytes buffer(kMessage);
         const auto received = exchange.Recv(tag, buffer);
         GiveWhole(exchange, tag);
         EXPECT_TRUE(EndOf(received).ok());
         EXPECT_EQ(buffer, Pattern(kMessage, 3));
       }},
      {"MessageFirst",
       [](Exchange& exchange, uint64_t tag) {
         GiveWhole(exchange, tag);
         Bytes buffer(kMessage);
         EXPECT_TRUE(EndOf(exchange.Recv(tag, buffer)).ok());
         EXPECT_EQ(buffer, Pattern(kMessage, 3));
       }},
      {"ReceiveFindsHalfOfIt",
       [](Exchange& exchange, uint64_t tag) {
         GiveHalf(exchange, tag);
         Bytes buffer(kMessage);
         const auto received = exchange.Recv(tag, buffer);
         EXPECT_FALSE(received->Done());
         GiveRest(exchange);
         EXPECT_TRUE(EndOf(received).ok());
         EXPECT_EQ(buffer, Pattern(kMessage, 3));
       }},
      {"PostedWithAnotherSize",
       [](Exchange& exchange, uint64_t tag) {
         Bytes buffer(kMessage + 1);
         const auto received = exchange.Recv(tag, buffer);
         GiveWhole(exchange, tag);
         EXPECT_EQ(EndOf(received).message(), "worker-1 sends 1000 bytes where 1001 are expected");
       }},
      {"TakenWithAnotherSize",
       [](Exchange& exchange, uint64_t tag) {
         GiveWhole(exchange, tag);
         Bytes buffer(kMessage - 1);
         EXPECT_EQ(EndOf(exchange.Recv(tag, buffer)).code(), StatusCode::kInvalidArgument);
       }},
      {"HalfOfItTakenWithAnotherSize",
       [](Exchange& exchange, uint64_t tag) {
         GiveHalf(exchange, tag);
         Bytes buffer(kMessage - 1);
         EXPECT_EQ(EndOf(exchange.Recv(tag, buffer)).code(), StatusCode::kInvalidArgument);
         GiveRest(exchange);
       }},
      {"ReceiveGivenUpInTheMiddle",
       [](Exchange& exchange, uint64_t tag) {
         Bytes buffer(kMessage);
         const auto received = exchange.Recv(tag, buffer);
         GiveHalf(exchange, tag);
         exchange.Cancel(*received);
         const Bytes before = buffer;
         GiveRest(exchange);
         EXPECT_EQ(buffer, before) << "it is its owner's again";
       }},
      {"HalfOfItTakenAndGivenUp",
       [](Exchange& exchange, uint64_t tag) {
         GiveHalf(exchange, tag);
         Bytes buffer(kMessage);
         const auto received = exchange.Recv(tag, buffer);
         exchange.Cancel(*received);
         GiveRest(exchange);
         EXPECT_EQ(buffer, Bytes(kMessage)) << "it is its owner's again";
       }},
  };
}

class CreditTest : public testing::TestWithParam<Path> {};

TEST_P(CreditTest, ComesBackOnceAndInWhole) {
  Exchange exchange;
  size_t credited = 0;
  constexpr uint64_t kMessages = 600;  // More than twice the window.
  for (uint64_t tag = 0; tag < kMessages; ++tag) {
    GetParam().run(exchange, tag);
    ASSERT_EQ(exchange.receiver.window_held(), 0U) << "nothing lies here";
    for (const FrameHeader& header : exchange.SentHeaders()) {
      ASSERT_EQ(header.kind, FrameKind::kCredit);
      credited += header.total;
    }
  }
  const size_t used = kMessages * EagerCost(kMessage);
  EXPECT_LE(credited, used);
  EXPECT_LT(used - credited, kEagerWindow / 4) << "what is not yet told";
}

INSTANTIATE_TEST_SUITE_P(Paths, CreditTest, testing::ValuesIn(Paths()), [](const auto& parameter) {
  return parameter.param.name;
});

TEST(CreditTest, WhatLiesUnmatchedIsHeld) {
  Exchange exchange;
  GiveWhole(exchange, 1);
  GiveWhole(exchange, 1);
  EXPECT_EQ(exchange.receiver.window_held(), 2 * EagerCost(kMessage));
}

// --- Refusals: what no peer of good will sends ends the connection with its reason.

struct Refusal {
  std::string name;
  /// What comes before is accepted; what this returns is refused.
  std::function<WholeFrame(Exchange&)> prepare;
  std::string reason;
};

WholeFrame Bare(const FrameHeader& header) {
  return {.header = header, .payload = {}};
}

/// Buffers that outlive the exchange.
Bytes& Keep(Bytes bytes) {
  static std::vector<std::unique_ptr<Bytes>> kept;
  kept.push_back(std::make_unique<Bytes>(std::move(bytes)));
  return *kept.back();
}

constexpr size_t kLarge = size_t{1} << 20;

/// A large message to the peer has asked under number 1.
std::shared_ptr<Operation> Asked(Exchange& exchange) {
  auto sent = exchange.Send(1, Keep(Bytes(kLarge)));
  EXPECT_THAT(KindsOf(exchange.SentHeaders()), ElementsAre(FrameKind::kRequest));
  return sent;
}

/// A large message of the peer is granted under number 1.
std::shared_ptr<Operation> Granted(Exchange& exchange, size_t size = 100) {
  auto received = exchange.Recv(1, Keep(Bytes(size)));
  EXPECT_TRUE(exchange.Give(RequestFrame(1, 1, size)).ok());
  EXPECT_THAT(KindsOf(exchange.SentHeaders()), ElementsAre(FrameKind::kGrant));
  return received;
}

std::vector<Refusal> Refusals() {
  return {
      {"CreditBeyondTheWindow", [](Exchange&) { return Bare(FrameOf(FrameKind::kCredit, 0, 1)); },
       "credit of 1 bytes that were never used"},
      {"CreditBeyondWhatIsUsed",
       [](Exchange& exchange) {
         exchange.Send(1, Keep(Bytes(100)));
         EXPECT_THAT(KindsOf(exchange.SentHeaders()), ElementsAre(FrameKind::kEager));
         return Bare(FrameOf(FrameKind::kCredit, 0, EagerCost(100) + 1));
       },
       "credit of 149 bytes that were never used"},
      {"CreditTwice",
       [](Exchange& exchange) {
         exchange.Send(1, Keep(Bytes(100)));
         exchange.SentHeaders();
         EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kCredit, 0, EagerCost(100))).ok());
         return Bare(FrameOf(FrameKind::kCredit, 0, EagerCost(100)));
       },
       "credit of 148 bytes that were never used"},
      {"CreditThatWraps",
       [](Exchange&) { return Bare(FrameOf(FrameKind::kCredit, 0, ~uint64_t{0})); },
       "that were never used"},
      {"EagerBeyondTheWindow",
       [](Exchange& exchange) {
         const Bytes most(kEagerBytes);
         for (size_t i = 0; i < kEagerWindow / EagerCost(kEagerBytes); ++i) {
           EXPECT_TRUE(exchange.Give(EagerFrame(i, most)).ok());
         }
         return EagerFrame(99, most);
       },
       "more eager bytes than the window has"},
      {"RequestsBeyondTheLimit",
       [](Exchange& exchange) {
         for (uint64_t id = 1; id <= kRequestLimit; ++id) {
           EXPECT_TRUE(exchange.Give(RequestFrame(id, id, kLarge)).ok());
         }
         return Bare(RequestFrame(kRequestLimit + 1, 9, kLarge));
       },
       "more than 1024 messages wait for a receive"},
      {"ANumberTwice",
       [](Exchange& exchange) {
         EXPECT_TRUE(exchange.Give(RequestFrame(1, 1, kLarge)).ok());
         return Bare(RequestFrame(1, 2, kLarge));
       },
       "message 1 announced after message 1"},
      {"ANumberFromBefore",
       [](Exchange& exchange) {
         EXPECT_TRUE(exchange.Give(RequestFrame(5, 1, kLarge)).ok());
         return Bare(RequestFrame(4, 2, kLarge));
       },
       "message 4 announced after message 5"},
      {"NumberZero", [](Exchange&) { return Bare(RequestFrame(0, 1, kLarge)); },
       "message 0 announced after message 0"},
      {"GrantOfNothing", [](Exchange&) { return Bare(FrameOf(FrameKind::kGrant, 1, 0)); },
       "grant of message 1 that waits for none"},
      {"GrantOfAnEagerMessage",
       [](Exchange& exchange) {
         exchange.Send(1, Keep(Bytes(100)));
         exchange.SentHeaders();
         return Bare(FrameOf(FrameKind::kGrant, 0, 0));
       },
       "grant of message 0 that waits for none"},
      {"GrantTwice",
       [](Exchange& exchange) {
         Asked(exchange);
         EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
         return Bare(FrameOf(FrameKind::kGrant, 1, 0));
       },
       "grant of message 1 that waits for none"},
      {"GrantAfterReject",
       [](Exchange& exchange) {
         const auto sent = Asked(exchange);
         EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kReject, 1, 5)).ok());
         EXPECT_EQ(EndOf(sent).message(), "worker-1 expects 5 bytes where 1048576 are sent");
         return Bare(FrameOf(FrameKind::kGrant, 1, 0));
       },
       "grant of message 1 that waits for none"},
      {"RejectTwice",
       [](Exchange& exchange) {
         Asked(exchange);
         EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kReject, 1, 5)).ok());
         return Bare(FrameOf(FrameKind::kReject, 1, 5));
       },
       "grant of message 1 that waits for none"},
      {"AnAnswerToWhatWasGivenUpTwice",
       [](Exchange& exchange) {
         const auto sent = Asked(exchange);
         exchange.Cancel(*sent);
         EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
         return Bare(FrameOf(FrameKind::kGrant, 1, 0));
       },
       "grant of message 1 that waits for none"},
      {"DataBeyondTheMessage",
       [](Exchange& exchange) {
         Granted(exchange);
         EXPECT_TRUE(exchange.Give(DataFrame(1, Bytes(60))).ok());
         return DataFrame(1, Bytes(41));
       },
       "41 bytes at 60 of a message of 100"},
      {"EmptyData",
       [](Exchange& exchange) {
         Granted(exchange);
         return DataFrame(1, {});
       },
       "0 bytes at 0 of a message of 100"},
      {"PlacedWithoutADevice",
       [](Exchange& exchange) {
         Granted(exchange);
         return Bare(FrameOf(FrameKind::kPlaced, 1, 0));
       },
       "message 1 placed where it was not to be"},
      {"AnEagerMessageOfAnotherLength",
       [](Exchange&) {
         WholeFrame frame = EagerFrame(1, Bytes(10));
         frame.header.total = 11;
         return frame;
       },
       "frame of kind 1 with 10 of 11 bytes"},
      {"AnEagerMessageThatIsTooLarge",
       [](Exchange&) { return EagerFrame(1, Bytes(kEagerBytes + 1)); },
       "frame of kind 1 with 65537 of 65537 bytes"},
      {"AChunkThatIsTooLarge",
       [](Exchange& exchange) {
         Granted(exchange, kLarge);
         return DataFrame(1, Bytes(kChunkBytes + 1));
       },
       "frame of kind 5 with 262145 of 0 bytes"},
      {"AControlFrameWithAPayload",
       [](Exchange&) {
         WholeFrame frame = Bare(FrameOf(FrameKind::kGoodbye, 0, 0));
         frame.header.length = 1;
         return frame;
       },
       "frame of kind 8 with 1 of 0 bytes"},
      {"AnUnknownKind", [](Exchange&) { return Bare(FrameOf(static_cast<FrameKind>(12), 0, 0)); },
       "frame of kind 12"},
      {"AnotherGeneration",
       [](Exchange&) {
         FrameHeader header = FrameOf(FrameKind::kCredit, 0, 0);
         header.generation = kExchangeGeneration + 1;
         return Bare(header);
       },
       "frame of generation 8"},
      {"AnotherMagic",
       [](Exchange&) {
         FrameHeader header = FrameOf(FrameKind::kCredit, 0, 0);
         header.magic ^= 1;
         return Bare(header);
       },
       "frame with magic"},
  };
}

class RefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, EndsTheConnection) {
  Exchange exchange;
  const WholeFrame frame = GetParam().prepare(exchange);
  const Status status = exchange.Give(frame);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(Refusals,
                         RefusalTest,
                         testing::ValuesIn(Refusals()),
                         [](const auto& parameter) { return parameter.param.name; });

// --- What is at the edge of a refusal and is none.

TEST(ProtocolTest, AllCreditsMayComeBackAtOnce) {
  Exchange exchange;
  exchange.Send(1, Keep(Bytes(100)));
  exchange.Send(1, Keep(Bytes(0)));
  exchange.SentHeaders();
  EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kCredit, 0, EagerCost(100) + EagerCost(0))).ok());
}

TEST(ProtocolTest, DataOfAReceiveThatWasGivenUpIsDropped) {
  Exchange exchange;
  const auto received = Granted(exchange);
  exchange.Cancel(*received);
  EXPECT_TRUE(exchange.Give(DataFrame(1, Pattern(100, 1))).ok());
  EXPECT_EQ(Bytes(received->target, received->target + 100), Bytes(100));
  EXPECT_TRUE(exchange.Give(FrameOf(FrameKind::kPlaced, 1, 0)).ok()) << "or of none at all";
}

TEST(ProtocolTest, WhatIsGrantedArrivesInPieces) {
  Exchange exchange;
  const auto received = Granted(exchange);
  const Bytes data = Pattern(100, 1);
  ASSERT_TRUE(exchange.Give(DataFrame(1, Bytes(data.begin(), data.begin() + 99))).ok());
  EXPECT_FALSE(received->Done());
  ASSERT_TRUE(exchange.Give(DataFrame(1, Bytes(data.begin() + 99, data.end()))).ok());
  EXPECT_TRUE(EndOf(received).ok());
  EXPECT_EQ(Bytes(received->target, received->target + 100), data);
}

TEST(ProtocolTest, ARequestOfAnotherSizeIsRejectedAtBothEnds) {
  Exchange exchange;
  const auto received = exchange.Recv(1, Keep(Bytes(100)));
  ASSERT_TRUE(exchange.Give(RequestFrame(1, 1, kLarge)).ok());
  EXPECT_EQ(EndOf(received).message(), "worker-1 sends 1048576 bytes where 100 are expected");
  const auto sent = exchange.SentHeaders();
  ASSERT_THAT(KindsOf(sent), ElementsAre(FrameKind::kReject));
  EXPECT_EQ(sent[0].id, 1U);
  EXPECT_EQ(sent[0].total, 100U);
}

TEST(ProtocolTest, ARequestThatWaitsMakesRoomWhenItIsTaken) {
  Exchange exchange;
  for (uint64_t id = 1; id <= kRequestLimit; ++id) {
    ASSERT_TRUE(exchange.Give(RequestFrame(id, id, 100)).ok());
  }
  exchange.Recv(3, Keep(Bytes(100)));
  exchange.Recv(4, Keep(Bytes(101)));  // Rejected.
  EXPECT_TRUE(exchange.Give(RequestFrame(kRequestLimit + 1, 9, 100)).ok());
  EXPECT_TRUE(exchange.Give(RequestFrame(kRequestLimit + 2, 9, 100)).ok());
  EXPECT_FALSE(exchange.Give(RequestFrame(kRequestLimit + 3, 9, 100)).ok());
}

TEST(ProtocolTest, WhatFindsTheWindowFullAsks) {
  Exchange exchange;
  const size_t fit = kEagerWindow / EagerCost(kEagerBytes);
  for (size_t i = 0; i <= fit; ++i) {
    exchange.Send(1, Keep(Bytes(kEagerBytes)));
  }
  std::vector<FrameKind> expected(fit, FrameKind::kEager);
  expected.push_back(FrameKind::kRequest);
  EXPECT_EQ(KindsOf(exchange.SentHeaders()), expected);
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kCredit, 0, EagerCost(kEagerBytes))).ok());
  exchange.Send(1, Keep(Bytes(kEagerBytes)));
  EXPECT_THAT(KindsOf(exchange.SentHeaders()), ElementsAre(FrameKind::kEager));
}

TEST(ProtocolTest, MoreThanTheLimitWaitUnannounced) {
  Exchange exchange;
  std::vector<std::shared_ptr<Operation>> sent;
  for (size_t i = 0; i < kRequestLimit + 2; ++i) {
    sent.push_back(exchange.Send(1, Keep(Bytes(kEagerBytes + 1))));
  }
  EXPECT_EQ(exchange.SentHeaders().size(), kRequestLimit);
  exchange.Cancel(*sent[0]);
  EXPECT_THAT(exchange.SentHeaders(), IsEmpty()) << "the peer still holds its request";
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kReject, 1, 0)).ok());
  EXPECT_THAT(KindsOf(exchange.SentHeaders()), ElementsAre(FrameKind::kRequest));
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kReject, 2, 0)).ok());
  EXPECT_THAT(KindsOf(exchange.SentHeaders()), ElementsAre(FrameKind::kRequest));
}

TEST(ProtocolTest, ControlGoesFirstThenMessagesThenChunks) {
  Exchange exchange;
  const Bytes& large = Keep(Pattern(kChunkBytes + 1, 5));
  const auto sent = exchange.Send(1, large);
  exchange.SentHeaders();
  exchange.connection().room = 0;
  ASSERT_TRUE(exchange.Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
  exchange.Send(2, Keep(Bytes(10)));
  exchange.Recv(3, Keep(Bytes(100)));
  ASSERT_TRUE(exchange.Give(RequestFrame(1, 3, 100)).ok());
  exchange.connection().room = SIZE_MAX / 2;
  const auto frames = exchange.Sent();
  std::vector<FrameKind> kinds;
  Bytes arrived;
  for (const WholeFrame& frame : frames) {
    kinds.push_back(frame.header.kind);
    if (frame.header.kind == FrameKind::kData) {
      arrived.insert(arrived.end(), frame.payload.begin(), frame.payload.end());
    }
  }
  EXPECT_THAT(
      kinds, ElementsAre(FrameKind::kGrant, FrameKind::kEager, FrameKind::kData, FrameKind::kData));
  EXPECT_EQ(arrived, large);
  EXPECT_TRUE(EndOf(sent).ok());
}

// The stream stays whole for what is behind.
TEST(ProtocolTest, AFrameThatIsHalfWrittenIsFinishedFromACopy) {
  Exchange exchange;
  Bytes data = Pattern(1000, 9);
  const auto sent = exchange.Send(1, data);
  exchange.connection().room = sizeof(FrameHeader) + 300;
  EXPECT_THAT(exchange.Sent(), IsEmpty());
  exchange.Cancel(*sent);
  std::fill(data.begin(), data.end(), std::byte{0xFF});
  exchange.Send(2, Keep(Bytes(5)));
  exchange.connection().room = SIZE_MAX / 2;
  const auto frames = exchange.Sent();
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].payload, Pattern(1000, 9));
  EXPECT_EQ(frames[1].header.tag, 2U);
}

TEST(ProtocolTest, MessagesOfOneKeyMeetInTheirOrder) {
  Exchange exchange;
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Pattern(4, 1))).ok());
  ASSERT_TRUE(exchange.Give(RequestFrame(1, 1, 4)).ok());
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Pattern(4, 3))).ok());
  Bytes first(4);
  Bytes second(4);
  Bytes third(4);
  EXPECT_TRUE(EndOf(exchange.Recv(1, first)).ok());
  const auto granted = exchange.Recv(1, second);
  EXPECT_TRUE(EndOf(exchange.Recv(1, third)).ok());
  ASSERT_TRUE(exchange.Give(DataFrame(1, Pattern(4, 2))).ok());
  EXPECT_TRUE(EndOf(granted).ok());
  EXPECT_EQ(first, Pattern(4, 1));
  EXPECT_EQ(second, Pattern(4, 2));
  EXPECT_EQ(third, Pattern(4, 3));
}

TEST(ProtocolTest, ReceivesOfOneKeyAreServedInTheirOrder) {
  Exchange exchange;
  Bytes first(4);
  Bytes second(4);
  exchange.Recv(1, first);
  exchange.Recv(1, second);
  Bytes other(4);
  exchange.Recv(2, other);
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Pattern(4, 1))).ok());
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Pattern(4, 2))).ok());
  EXPECT_EQ(first, Pattern(4, 1));
  EXPECT_EQ(second, Pattern(4, 2));
  EXPECT_EQ(other, Bytes(4));
}

TEST(ProtocolTest, LastWordsComeThrough) {
  Exchange aborted;
  const std::string why = "no more";
  WholeFrame frame{.header = FrameOf(FrameKind::kAbort, 0, 0), .payload = Bytes(why.size())};
  std::memcpy(frame.payload.data(), why.data(), why.size());
  frame.header.length = static_cast<uint32_t>(why.size());
  const Status abort = aborted.Give(frame);
  EXPECT_EQ(abort.code(), StatusCode::kAborted);
  EXPECT_EQ(abort.message(), why);
  Exchange left;
  EXPECT_EQ(left.Give(FrameOf(FrameKind::kGoodbye, 0, 0)).code(), StatusCode::kCancelled);
}

// --- Placement.

class PlacementTest : public testing::Test {
 protected:
  void SetUp() override {
    auto buffer = regions_->Allocate(kLarge);
    ASSERT_TRUE(buffer.ok());
    buffer_ = *std::move(buffer);
    exchange_.emplace(regions_);
  }

  const std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>(nullptr);
  SharedBuffer buffer_;
  std::optional<Exchange> exchange_;
};

TEST_F(PlacementTest, AGrantSaysWhere) {
  const auto received = exchange_->Recv(1, buffer_.bytes());
  ASSERT_TRUE(exchange_->Give(RequestFrame(1, 1, kLarge)).ok());
  const auto sent = exchange_->SentHeaders();
  ASSERT_THAT(KindsOf(sent), ElementsAre(FrameKind::kGrant));
  EXPECT_EQ(sent[0].tag, 4096U);
  EXPECT_EQ(sent[0].space, 6U);
  EXPECT_TRUE(exchange_->receiver.IsExposed());
  ASSERT_TRUE(exchange_->Give(FrameOf(FrameKind::kPlaced, 1, 0)).ok());
  EXPECT_TRUE(EndOf(received).ok());
  EXPECT_FALSE(exchange_->receiver.IsExposed());
}

TEST_F(PlacementTest, AMessageIsPlacedOrSentNotBoth) {
  exchange_->Recv(1, buffer_.bytes());
  ASSERT_TRUE(exchange_->Give(RequestFrame(1, 1, kLarge)).ok());
  ASSERT_TRUE(exchange_->Give(DataFrame(1, Bytes(10))).ok());
  const Status status = exchange_->Give(FrameOf(FrameKind::kPlaced, 1, 0));
  EXPECT_EQ(status.message(), "message 1 placed where it was not to be");
}

TEST_F(PlacementTest, ASendEndsWhenItsBytesHaveArrived) {
  const auto sent = exchange_->Send(1, buffer_.bytes());
  exchange_->SentHeaders();
  FrameHeader grant = FrameOf(FrameKind::kGrant, 1, 0);
  grant.tag = 4096;
  grant.space = 6;
  ASSERT_TRUE(exchange_->Give(grant).ok());
  EXPECT_THAT(KindsOf(exchange_->SentHeaders()), ElementsAre(FrameKind::kPlaced));
  EXPECT_EQ(exchange_->connection().given, kLarge);
  EXPECT_TRUE(exchange_->sender.IsPlacing());
  exchange_->connection().arrived = kLarge - 1;
  exchange_->placement.EndArrived();
  EXPECT_FALSE(sent->Done());
  exchange_->connection().arrived = kLarge;
  exchange_->placement.EndArrived();
  EXPECT_TRUE(EndOf(sent).ok());
  EXPECT_FALSE(exchange_->sender.IsPlacing());
}

TEST_F(PlacementTest, AGrantWithoutAPlaceIsServedByTheStream) {
  const auto sent = exchange_->Send(1, buffer_.bytes());
  exchange_->SentHeaders();
  ASSERT_TRUE(exchange_->Give(FrameOf(FrameKind::kGrant, 1, 0)).ok());
  EXPECT_THAT(KindsOf(exchange_->SentHeaders()), testing::Each(FrameKind::kData));
  EXPECT_EQ(exchange_->connection().given, 0U);
  EXPECT_TRUE(EndOf(sent).ok());
}

}  // namespace
}  // namespace heddle::comm
