// What a channel moves, gives and watches while it is open.
#include "tests/comm/message/channel_life.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

TEST_F(ChannelLifeTest, NothingMovesBeforeItIsStarted) {
  Bytes data(10);
  const auto sent = channel_->Send(Key(1), data);
  EXPECT_TRUE(wire_->Frames().empty());
  EXPECT_FALSE(sent->Done());
  EXPECT_FALSE(channel_->DriveOnce(*sent, false, Now()).in_use);
  channel_->Start();
  EXPECT_TRUE(EndOf(sent).ok());
  ASSERT_EQ(wire_->Frames().size(), 1U);
  EXPECT_EQ(wire_->Frames()[0].tag, 1U);
  EXPECT_EQ(channel_->bytes_sent(), 58);
  EXPECT_EQ(sent_.Value(), 58);
  EXPECT_EQ(channel_->transport(), "wire");
  EXPECT_EQ(channel_->port(), "p0");
  EXPECT_FALSE(channel_->passes_descriptors());
  EXPECT_FALSE(channel_->places());
  EXPECT_EQ(channel_->peer_process(), 0);
}

TEST_F(ChannelLifeTest, ASmallMessageNeedsNoHopToTheLoop) {
  channel_->Start();
  Settle();
  Bytes data(10);
  EXPECT_TRUE(channel_->Send(Key(1), data)->Done()) << "sent by the caller itself";
}

TEST_F(ChannelLifeTest, AnOperationThatIsGivenUpIsNobodysAnyMore) {
  channel_->Start();
  Settle();
  Bytes buffer(2, std::byte{'x'});
  const auto received = channel_->Recv(Key(3), buffer);
  channel_->CancelOperation(*received, DeadlineExceededError("too late"));
  EXPECT_EQ(EndOf(received).message(), "too late");
  channel_->CancelOperation(*received, AbortedError("again"));
  EXPECT_EQ(EndOf(received).message(), "too late");
  FrameHeader message = Frame(FrameKind::kEager, 0, 2, 2);
  message.tag = 3;
  wire_->Give(message, "ab");
  Settle();
  EXPECT_EQ(buffer[0], std::byte{'x'});
}

TEST_F(ChannelLifeTest, DescriptorsGoWhereTheConnectionPassesThem) {
  EXPECT_EQ(channel_->SendDescriptor(1, 2).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(channel_->SendDescriptor(1, 2).message(), "wire hands over no descriptors");
  EXPECT_EQ(channel_->TakeDescriptor(1).status().code(), StatusCode::kUnimplemented);
  TearDown();
  Make(true);
  EXPECT_TRUE(channel_->passes_descriptors());
  EXPECT_EQ(channel_->peer_process(), 77);
  EXPECT_EQ(channel_->SendDescriptor(1, 2).message(), "sent 2 as 1");
  EXPECT_EQ(channel_->TakeDescriptor(5).status().message(), "took 5");
  channel_->Fail(UnavailableError("gone"));
  EXPECT_EQ(channel_->SendDescriptor(1, 2).message(), "gone");
  EXPECT_EQ(channel_->TakeDescriptor(5).status().message(), "gone");
}

TEST_F(ChannelLifeTest, WhatIsUnfinishedIsSeenFromOutside) {
  const auto tagged = [](uint64_t tag) {
    return [tag](const MessageKey& key) { return key.tag == tag; };
  };
  Bytes buffer(10);
  const Bytes large(1 << 20);
  channel_->Start();
  Settle();
  EXPECT_TRUE(channel_->Inspect(tagged(1), tagged(2)).open);
  EXPECT_FALSE(channel_->Inspect(tagged(1), tagged(2)).waits);
  channel_->Recv(Key(1), buffer);
  channel_->Send(Key(5), large);
  EXPECT_TRUE(channel_->Inspect(tagged(1), tagged(2)).waits);
  EXPECT_TRUE(channel_->Inspect(tagged(5), tagged(2)).waits);
  EXPECT_FALSE(channel_->Inspect(tagged(2), tagged(1)).waits);
  FrameHeader early = Frame(FrameKind::kEager, 0, 0);
  early.tag = 2;
  wire_->Give(early);
  Settle();
  EXPECT_EQ(channel_->Inspect(tagged(1), tagged(2)).unexpected.size(), 1U);
  EXPECT_TRUE(channel_->Inspect(tagged(1), tagged(1)).unexpected.empty());
  channel_->Fail(UnavailableError("gone"));
  const auto snapshot = channel_->Inspect(tagged(1), tagged(2));
  EXPECT_FALSE(snapshot.open);
  EXPECT_FALSE(snapshot.waits);
  EXPECT_TRUE(snapshot.unexpected.empty());
}

TEST_F(ChannelLifeTest, TheLoopWatchesForBytesAndForRoomWhereAFrameWaits) {
  channel_->Start();
  Settle();
  {
    const std::lock_guard lock(wire_->mutex);
    ASSERT_FALSE(wire_->watched.empty());
    EXPECT_EQ(wire_->watched.back(), std::pair(true, false));
    EXPECT_EQ(wire_->waited.back(), std::pair(true, false));
    wire_->room = 10;
  }
  Bytes data(100);
  channel_->Send(Key(1), data);
  {
    const std::lock_guard lock(wire_->mutex);
    EXPECT_EQ(wire_->watched.back(), std::pair(true, true));
    EXPECT_EQ(wire_->waited.back(), std::pair(true, true));
  }
  channel_->Fail(UnavailableError("gone"));  // The operation ends before its data.
}

TEST_F(ChannelLifeTest, ADriverHasTheWatchingAndTheLoopHasNone) {
  channel_->Start();
  Settle();
  Bytes buffer(10);
  const auto received = channel_->Recv(Key(1), buffer);
  auto look = channel_->DriveOnce(*received, false, Now());
  EXPECT_TRUE(look.in_use);
  EXPECT_FALSE(look.moved);
  EXPECT_EQ(look.sleep_on.fd, wire_->event.get());
  EXPECT_EQ(look.sleep_on.events, 0U);
  {
    const std::lock_guard lock(wire_->mutex);
    EXPECT_EQ(wire_->watched.back(), std::pair(false, false));
    wire_->waited.clear();
    wire_->ready.clear();
  }
  EXPECT_TRUE(channel_->PrepareToSleep());
  {
    const std::lock_guard lock(wire_->mutex);
    EXPECT_EQ(wire_->waited, (std::vector{std::pair(true, false)}));
    wire_->prepared = false;
  }
  EXPECT_FALSE(channel_->PrepareToSleep()) << "there is something";
  channel_->DriveOnce(*received, true, Now());
  {
    const std::lock_guard lock(wire_->mutex);
    EXPECT_EQ(wire_->ready, (std::vector{std::pair(wire_->event.get(), 0U)}));
    wire_->prepared = true;
  }
  FrameHeader message = Frame(FrameKind::kEager, 0, 10, 10);
  message.tag = 1;
  wire_->Give(message, "0123456789");
  look = channel_->DriveOnce(*received, false, Now());
  EXPECT_TRUE(look.moved);
  EXPECT_TRUE(received->Done());
  EXPECT_EQ(received_.Value(), 58);
  channel_->EndDrive(false);
  const std::lock_guard lock(wire_->mutex);
  EXPECT_EQ(wire_->watched.back(), std::pair(true, false)) << "the loop has it again";
}

TEST_F(ChannelLifeTest, ALimitedLinkIsTheLoopsToWaitFor) {
  channel_->Start();
  Settle();
  outgoing_->SetRate(1000, Now());
  outgoing_->Charge(10'000'000, Now());
  const Bytes data(100);
  const auto sent = channel_->Send(Key(1), data);
  EXPECT_FALSE(sent->Done());
  EXPECT_FALSE(channel_->DriveOnce(*sent, false, Now()).in_use);
  {
    const std::lock_guard lock(wire_->mutex);
    EXPECT_EQ(wire_->watched.back(), std::pair(true, false)) << "no room of the wire's helps";
  }
  outgoing_->SetRate(0, Now());
  static_cast<Watched&>(*channel_).HandleReady(-1, 0);
  EXPECT_TRUE(EndOf(sent).ok());
}

TEST_F(ChannelLifeTest, BytesThatWentBesideItAreCounted) {
  channel_->CountShared(100, 7);
  EXPECT_EQ(channel_->bytes_sent(), 100);
  EXPECT_EQ(sent_.Value(), 100);
  EXPECT_EQ(received_.Value(), 7);
}

}  // namespace
}  // namespace heddle::comm
