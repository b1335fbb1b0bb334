// A caller's thread that moves a channel's messages and goes in the middle: the event loop goes on.
#include <atomic>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "comm/channel.h"
#include "comm/event_loop.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;

/// A peer that grants the first message and takes whatever comes.
class Taker : public Connection {
 public:
  explicit Taker(std::atomic<size_t>& taken) : taken_(taken) {
    grant_.kind = FrameKind::kGrant;
    grant_.id = 1;
  }

  std::string_view transport() const override { return "taker"; }
  Result<size_t> Write(std::span<const iovec> parts) override {
    size_t size = 0;
    for (const iovec& part : parts) {
      size += part.iov_len;
    }
    taken_ += size;
    return size;
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    if (taken_ == 0 || granted_) {
      return size_t{0};
    }
    granted_ = true;
    std::memcpy(buffer.data(), &grant_, sizeof(grant_));
    return sizeof(grant_);
  }
  std::array<Watch, 2> Watches(bool /*want_read*/, bool /*want_write*/) override { return {}; }
  void CloseWrite() override {}
  void Reset() override {}

 private:
  std::atomic<size_t>& taken_;
  FrameHeader grant_;
  bool granted_ = false;
};

class DriverTest : public testing::TestWithParam<bool> {};

// What one look of a driver writes is bounded, and a message may be longer. The loop, which was to
// go on, finds the channel driven and leaves it alone; then the driver goes.
TEST_P(DriverTest, WhatItLeavesUnwrittenIsWritten) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  std::atomic<size_t> taken = 0;
  metrics::Counter unused;
  ChannelOptions options;
  options.peer_name = "worker-1";
  options.operation_timeout = std::chrono::seconds(20);
  options.outgoing = options.incoming = std::make_shared<TokenBucket>();
  options.sent_bytes = options.received_bytes = options.lost = &unused;
  options.open = std::make_shared<OpenCount>();
  const auto channel =
      std::make_shared<Channel>(*loop, std::make_unique<Taker>(taken), std::move(options));
  Work::State elsewhere{std::chrono::seconds(20)};  // The driver waits for something else.
  channel->Start();
  const Bytes data(16 << 20);
  // Announced, and granted in the look.
  const auto sent = channel->Send({.tag = 1, .space = 0}, data, false);
  EXPECT_TRUE(channel->DriveOnce(elsewhere, false, Now()).in_use);
  EXPECT_FALSE(sent->Done());
  std::this_thread::sleep_for(milliseconds(50));  // For the loop to look.
  EXPECT_FALSE(sent->Done());
  channel->EndDrive(GetParam());
  EXPECT_TRUE(sent->Wait(After(std::chrono::seconds(5))).ok());
  EXPECT_GT(taken.load(), data.size());
  channel->Reset();
  (*loop)->Stop();
}

INSTANTIATE_TEST_SUITE_P(Lease, DriverTest, testing::Bool(), [](const auto& lease) {
  return lease.param ? "Back" : "Gone";
});

}  // namespace
}  // namespace heddle::comm
