// What a channel's receiving half says is in flight, at every stage of a message, and what an end
// takes from it: nothing may be forgotten there, or its caller would wait for ever.
#include <gtest/gtest.h>

#include "tests/comm/message/standing.h"

namespace heddle::comm {
namespace {

TEST(ReceiverStandingTest, APostedReceiveIsInFlightUntilItIsTaken) {
  Exchange exchange;
  Bytes buffer(kSmall);
  EXPECT_EQ(Of(exchange, 1), Stands{});
  const auto received = exchange.Recv(1, buffer);
  EXPECT_EQ(Of(exchange, 1), (Stands{.flies = true, .has = true}));
  ExpectTaken(exchange, received);
  EXPECT_EQ(Of(exchange, 1), Stands{});
}

TEST(ReceiverStandingTest, HalfAMessageIsInFlightAndItsBufferIsGivenBack) {
  Exchange exchange;
  Bytes buffer(kSmall);
  const auto received = exchange.Recv(1, buffer);
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Bytes(kSmall, std::byte{7})), 500).ok());
  EXPECT_EQ(Of(exchange, 1), (Stands{.flies = true, .has = true}));
  const Bytes before = buffer;
  ExpectTaken(exchange, received);
  ASSERT_TRUE(exchange.GiveRest().ok());
  EXPECT_EQ(buffer, before);
  EXPECT_EQ(Of(exchange, 1), Stands{});
  EXPECT_EQ(exchange.receiver.window_held(), 0U);
}

TEST(ReceiverStandingTest, AnEarlyMessageIsUnexpectedAndWholeWithItsLastByte) {
  Exchange exchange;
  WholeFrame frame = EagerFrame(1, Bytes(kSmall, std::byte{7}));
  frame.header.other_class = 17;
  ASSERT_TRUE(exchange.Give(frame, 500).ok());
  EXPECT_EQ(Of(exchange, 1), (Stands{.flies = true, .unexpected = 1}));
  ASSERT_TRUE(exchange.GiveRest().ok());
  EXPECT_EQ(Of(exchange, 1), (Stands{.whole = true, .unexpected = 1}));
  const auto unexpected = exchange.receiver.Unexpected(Tagged(1));
  EXPECT_EQ(unexpected.front().key, (MessageKey{.tag = 1, .space = 0}));
  EXPECT_EQ(unexpected.front().other_class, 17);
  EXPECT_FALSE(exchange.receiver.HasWhole({.tag = 1, .space = 1}));
  Bytes buffer(kSmall);
  EXPECT_TRUE(exchange.Recv(1, buffer)->Done());
  EXPECT_EQ(Of(exchange, 1), Stands{});
}

TEST(ReceiverStandingTest, WhoTookHalfAMessageWaitsForTheRest) {
  Exchange exchange;
  Bytes buffer(kSmall);
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Bytes(kSmall, std::byte{7})), 500).ok());
  const auto received = exchange.Recv(1, buffer);
  EXPECT_EQ(Of(exchange, 1), (Stands{.flies = true, .has = true}));
  ExpectTaken(exchange, received);
  EXPECT_EQ(Of(exchange, 1), (Stands{.flies = true}));
  ASSERT_TRUE(exchange.GiveRest().ok());
  EXPECT_EQ(buffer, Bytes(kSmall));
  EXPECT_EQ(exchange.receiver.window_held(), 0U) << "what was dropped makes room";
}

TEST(ReceiverStandingTest, ARequestThatWaitsIsUnexpectedAndNeverWhole) {
  Exchange exchange;
  FrameHeader request = RequestFrame(1, 1, kLarge);
  request.other_class = 3;
  ASSERT_TRUE(exchange.Give(request).ok());
  EXPECT_EQ(Of(exchange, 1), (Stands{.unexpected = 1}));
  EXPECT_EQ(exchange.receiver.Unexpected(Tagged(1)).front().other_class, 3);
  Bytes buffer(kLarge);
  const auto received = exchange.Recv(1, buffer);
  EXPECT_EQ(Of(exchange, 1), (Stands{.flies = true, .has = true}));
  ASSERT_TRUE(exchange.Give(DataFrame(1, Bytes(kSmall))).ok());
  EXPECT_EQ(Of(exchange, 1), (Stands{.flies = true, .has = true}));
  ExpectTaken(exchange, received);
  EXPECT_EQ(Of(exchange, 1), Stands{});
  ASSERT_TRUE(exchange.Give(DataFrame(1, Bytes(kSmall))).ok()) << "dropped";
  EXPECT_FALSE(received->Done());
}

// After an abort nothing that lies here is anybody's.
TEST(ReceiverStandingTest, WhatIsDroppedEarlyIsGone) {
  Exchange exchange;
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Bytes(kSmall))).ok());
  exchange.receiver.DropEarly();
  EXPECT_EQ(Of(exchange, 1), Stands{});
}

TEST(ReceiverStandingTest, FramesAreCountedWhenTheyAreWhole) {
  Exchange exchange;
  auto& received = exchange.frames().received;
  ASSERT_TRUE(exchange.Give(EagerFrame(1, Bytes(kSmall)), 500).ok());
  EXPECT_EQ(received[IndexOf(TrafficClass::kBulk)].load(), 0);
  ASSERT_TRUE(exchange.GiveRest().ok());
  EXPECT_EQ(received[IndexOf(TrafficClass::kBulk)].load(), 1);
  ASSERT_TRUE(exchange.Give(RequestFrame(1, 2, kLarge)).ok());
  EXPECT_EQ(received[IndexOf(TrafficClass::kBulk)].load(), 2);
  EXPECT_EQ(received[IndexOf(TrafficClass::kUrgent)].load(), 0);
}

TEST(ReceiverStandingTest, ADriverStopsAtWhatItWaitsFor) {
  Exchange exchange;
  Bytes first(kSmall);
  Bytes second(kSmall);
  const auto one = exchange.Recv(1, first);
  const auto other = exchange.Recv(2, second);
  auto& incoming = exchange.connection().incoming;
  for (const uint64_t tag : {1U, 2U}) {
    const WholeFrame frame = EagerFrame(tag, Bytes(kSmall));
    const auto* header = reinterpret_cast<const std::byte*>(&frame.header);
    incoming.insert(incoming.end(), header, header + sizeof(frame.header));
    incoming.insert(incoming.end(), frame.payload.begin(), frame.payload.end());
  }
  ASSERT_TRUE(exchange.receiver.Receive(one.get()).ok());
  EXPECT_TRUE(one->Done());
  EXPECT_FALSE(other->Done());
  EXPECT_TRUE(exchange.receiver.HasStaged()) << "it lies here";
  ASSERT_TRUE(exchange.receiver.Receive(nullptr).ok());
  EXPECT_TRUE(other->Done());
  EXPECT_FALSE(exchange.receiver.HasStaged());
}

// Many small frames: others have their turn, and the loop comes again at once.
TEST(ReceiverStandingTest, OneLookHasItsBudget) {
  Exchange exchange;
  auto& incoming = exchange.connection().incoming;
  for (int i = 0; i < 1000; ++i) {
    const FrameHeader frame = EagerFrame(1, {}).header;
    const auto* header = reinterpret_cast<const std::byte*>(&frame);
    incoming.insert(incoming.end(), header, header + sizeof(frame));
  }
  const auto& received = exchange.frames().received[IndexOf(TrafficClass::kBulk)];
  ASSERT_TRUE(exchange.receiver.Receive(nullptr).ok());
  EXPECT_GT(received.load(), 200);
  EXPECT_LT(received.load(), 260) << "512 steps: one to begin a frame, one to end it";
  EXPECT_LE(exchange.stream().TakeResumeAt(), Now());
  while (received.load() < 1000) {
    ASSERT_TRUE(exchange.receiver.Receive(nullptr).ok());
  }
  exchange.stream().TakeResumeAt();
  ASSERT_TRUE(exchange.receiver.Receive(nullptr).ok());
  EXPECT_EQ(exchange.stream().TakeResumeAt(), Time::max()) << "nothing is left";
}

}  // namespace
}  // namespace heddle::comm
