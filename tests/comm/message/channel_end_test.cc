// How a channel ends: what its peer and its owner hear, and what operations end with.
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/message/channel_life.h"

namespace heddle::comm {
namespace {

TEST_F(ChannelLifeTest, APeerThatAbortsSaysWhyAndIsNotLost) {
  channel_->Start();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  const auto sent = channel_->Send(Key(2), Bytes(1 << 20));
  wire_->Give(Frame(FrameKind::kAbort, 0, 0, 6), "enough");
  const Status status = EndOf(received);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(status.message(), "worker-1 aborted: enough");
  EXPECT_EQ(EndOf(sent).code(), StatusCode::kAborted);
  EXPECT_EQ(EndOf(channel_->Recv(Key(1), buffer)).message(), status.message()) << "later ones, too";
  EXPECT_EQ(EndOf(channel_->Send(Key(1), buffer)).message(), status.message());
  ASSERT_EQ(Ends().size(), 1U);
  EXPECT_EQ(Ends()[0], std::pair(status.ToString(), false));
  EXPECT_EQ(lost_.Value(), 0);
  Settle();
  EXPECT_TRUE(channel_->closed());
  EXPECT_TRUE(wire_->gone);
  EXPECT_TRUE(NoneOpen());
}

TEST_F(ChannelLifeTest, APeerThatLeavesIsNotLost) {
  channel_->Start();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  wire_->Give(Frame(FrameKind::kGoodbye, 0, 0));
  const Status status = EndOf(received);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "worker-1 left the group");
  ASSERT_EQ(Ends().size(), 1U);
  EXPECT_FALSE(Ends()[0].second);
  EXPECT_EQ(lost_.Value(), 0);
}

TEST_F(ChannelLifeTest, APeerThatIsGoneIsLostOnce) {
  channel_->Start();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  wire_->End();
  const Status status = EndOf(received);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "worker-1 was lost: the wire was cut");
  ASSERT_EQ(Ends().size(), 1U);
  EXPECT_TRUE(Ends()[0].second);
  EXPECT_EQ(lost_.Value(), 1);
}

TEST_F(ChannelLifeTest, APeerThatBreaksTheProtocolIsLost) {
  channel_->Start();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  wire_->Give(Frame(FrameKind::kGrant, 5, 0));
  EXPECT_EQ(EndOf(received).message(), "worker-1 was lost: grant of message 5 that waits for none");
  EXPECT_EQ(lost_.Value(), 1);
}

// What came in whole before the end is still there to be received.
TEST_F(ChannelLifeTest, WhatCameBeforeTheEndIsReceivedAfterIt) {
  channel_->Start();
  FrameHeader message = Frame(FrameKind::kEager, 0, 2, 2);
  message.tag = 3;
  wire_->Give(message, "ab");
  wire_->Give(Frame(FrameKind::kGoodbye, 0, 0));
  Settle();
  Bytes buffer(2);
  EXPECT_FALSE(EndOf(channel_->Recv(Key(4), buffer)).ok());
  EXPECT_TRUE(EndOf(channel_->Recv(Key(3), buffer)).ok());
  EXPECT_EQ(buffer[1], std::byte{'b'});
  EXPECT_FALSE(EndOf(channel_->Recv(Key(3), buffer)).ok()) << "once";
}

TEST_F(ChannelLifeTest, WhoClosesSaysGoodbyeOrWhyItAborts) {
  for (const bool aborted : {false, true}) {
    if (aborted) {
      TearDown();
      wire_->written.clear();
      wire_->closed.clear();
      wire_->gone = false;
      wire_->ended = false;
      Make(false);
    }
    channel_->Start();
    Settle();
    Bytes buffer(10);
    const auto received = channel_->Recv(Key(1), buffer);
    channel_->Report(Frame(FrameKind::kWaiting, 1, 0));
    const Status reason = CancelledError("we are done");
    channel_->Close(reason, aborted);
    EXPECT_EQ(EndOf(received).message(), "we are done");
    const auto frames = wire_->Frames();
    ASSERT_EQ(frames.size(), 2U);
    EXPECT_EQ(frames[0].kind, FrameKind::kWaiting);
    EXPECT_EQ(frames[1].kind, aborted ? FrameKind::kAbort : FrameKind::kGoodbye);
    EXPECT_EQ(frames[1].length, aborted ? 11U : 0U);
    EXPECT_EQ(frames[1].generation, kGeneration);
    {
      const std::lock_guard lock(wire_->mutex);
      EXPECT_EQ(wire_->closed, std::vector{Connection::Ending::kWriting});
      EXPECT_FALSE(wire_->gone) << "the peer has still to read it";
    }
    EXPECT_FALSE(channel_->closed());
    EXPECT_EQ(EndOf(channel_->Send(Key(1), buffer)).message(), "we are done");
    channel_->Close(AbortedError("again"), true);
    channel_->Report(Frame(FrameKind::kWaiting, 1, 0));
    EXPECT_EQ(wire_->Frames().size(), 2U) << "nothing is said behind the last word";
    wire_->End();
    EXPECT_TRUE(NoneOpen());
    EXPECT_TRUE(channel_->closed());
    EXPECT_TRUE(Ends().empty()) << "this end did it";
    EXPECT_EQ(lost_.Value(), 0);
  }
}

TEST_F(ChannelLifeTest, ACloseThatFindsNoRoomGoesOnWhenThereIsSome) {
  channel_->Start();
  Settle();
  wire_->room = 10;
  channel_->Close(CancelledError("done"), false);
  {
    const std::lock_guard lock(wire_->mutex);
    EXPECT_TRUE(wire_->closed.empty()) << "its last word is not out";
    wire_->room = 1000;
  }
  static_cast<Watched&>(*channel_).HandleTimer(Time());  // None that was asked for.
  static_cast<Watched&>(*channel_).HandleReady(-1, 0);
  const std::lock_guard lock(wire_->mutex);
  EXPECT_EQ(wire_->written.size(), sizeof(FrameHeader));
  EXPECT_EQ(wire_->closed, std::vector{Connection::Ending::kWriting});
}

TEST_F(ChannelLifeTest, FailEndsAllWithItsReasonAndTellsNobody) {
  channel_->Start();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  channel_->Fail(UnavailableError("worker-1 was lost: elsewhere"));
  EXPECT_EQ(EndOf(received).message(), "worker-1 was lost: elsewhere");
  EXPECT_TRUE(channel_->closed());
  EXPECT_TRUE(wire_->gone);
  channel_->Fail(UnavailableError("again"));
  EXPECT_EQ(EndOf(channel_->Recv(Key(1), buffer)).message(), "worker-1 was lost: elsewhere");
  EXPECT_TRUE(Ends().empty());
  EXPECT_EQ(lost_.Value(), 0);
  EXPECT_TRUE(NoneOpen());
}

TEST_F(ChannelLifeTest, ResetDropsTheConnectionAtOnce) {
  channel_->Start();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  channel_->Reset();
  EXPECT_EQ(EndOf(received).code(), StatusCode::kCancelled);
  EXPECT_EQ(EndOf(received).message(), "connection with worker-1 closed");
  EXPECT_EQ(wire_->closed, std::vector{Connection::Ending::kAtOnce});
  EXPECT_TRUE(wire_->gone);
  channel_->Reset();
  EXPECT_EQ(wire_->closed.size(), 1U);
  EXPECT_TRUE(NoneOpen());
}

TEST_F(ChannelLifeTest, AResetAfterACloseKeepsItsReason) {
  channel_->Start();
  Settle();
  channel_->Close(CancelledError("done"), false);
  channel_->Reset();
  Bytes buffer(1);
  EXPECT_EQ(EndOf(channel_->Recv(Key(1), buffer)).message(), "done");
}

// A driver that finds a loss leaves it to the loop, which tells of it.
TEST_F(ChannelLifeTest, ALossThatADriverFindsIsTheLoopsToTell) {
  channel_->Start();
  Settle();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  channel_->DriveOnce(*received, false, Now());
  wire_->Give(Frame(FrameKind::kAbort, 0, 0, 2), "no");
  EXPECT_FALSE(channel_->DriveOnce(*received, false, Now()).in_use);
  EXPECT_FALSE(channel_->PrepareToSleep());
  channel_->EndDrive(false);
  EXPECT_EQ(EndOf(received).message(), "worker-1 aborted: no");
  ASSERT_EQ(Ends().size(), 1U);
  EXPECT_FALSE(Ends()[0].second);
}

}  // namespace
}  // namespace heddle::comm
