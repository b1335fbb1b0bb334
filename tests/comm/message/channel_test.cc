// A channel by itself, over a connection that does what the test says, in the orders of events that
// a real one has once in many thousand runs.
#include "comm/message/channel.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "comm/stream/event_loop.h"

namespace heddle::comm {
namespace {

constexpr int64_t kGeneration = 7;
constexpr Duration kPatience = std::chrono::minutes(2);

/// What the peer has sent, as far as the test let it; what is written is taken at once.
struct Script {
  void Send(const FrameHeader& header) {
    const std::lock_guard lock(mutex);
    const auto* bytes = reinterpret_cast<const std::byte*>(&header);
    incoming.insert(incoming.end(), bytes, bytes + sizeof(header));
  }
  void End() {
    const std::lock_guard lock(mutex);
    ended = true;
  }

  std::mutex mutex;
  Bytes incoming;
  bool ended = false;
  std::atomic<size_t> written = 0;
  std::atomic<bool> places = false;
  std::atomic<int> exposed = 0;
  std::atomic<int> withdrawn = 0;
};

class Scripted : public Connection, public DirectPlacement {
 public:
  explicit Scripted(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  ConnectionInfo info() override {
    return {.transport = "scripted", .placement = script_->places ? this : nullptr};
  }
  Result<size_t> Write(std::span<const iovec> parts) override {
    size_t size = 0;
    for (const iovec& part : parts) {
      size += part.iov_len;
    }
    script_->written += size;
    return size;
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    const std::lock_guard lock(script_->mutex);
    if (script_->incoming.empty() && script_->ended) {
      return UnavailableError("the peer closed the connection");
    }
    const size_t size = std::min(buffer.size(), script_->incoming.size());
    std::copy_n(script_->incoming.begin(), size, buffer.begin());
    script_->incoming.erase(script_->incoming.begin(),
                            script_->incoming.begin() + static_cast<ptrdiff_t>(size));
    return size;
  }
  std::array<Watch, 2> Watches(bool /*want_read*/, bool /*want_write*/) override { return {}; }
  Result<RemoteMemory> Expose(const std::shared_ptr<const SharedRegion>& /*region*/,
                              std::span<std::byte> /*bytes*/) override {
    ++script_->exposed;
    return RemoteMemory{};
  }
  Status Prepare(const std::shared_ptr<const SharedRegion>& /*region*/) override {
    return UnimplementedError("no script places");
  }
  Result<size_t> Place(const std::shared_ptr<const SharedRegion>& /*region*/,
                       std::span<const std::byte> /*bytes*/,
                       const RemoteMemory& /*target*/) override {
    return UnimplementedError("no script places");
  }
  uint64_t placed() override { return 0; }
  void Withdraw() override { ++script_->withdrawn; }
  void Close(Ending /*how*/) override {}

 private:
  const std::shared_ptr<Script> script_;
};

FrameHeader Frame(FrameKind kind, uint64_t id, uint64_t total) {
  FrameHeader header;
  header.generation = kGeneration;
  header.kind = kind;
  header.id = id;
  header.total = total;
  return header;
}

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = *std::move(loop);
    ChannelOptions options;
    options.peer = 1;
    options.peer_name = "worker-1";
    options.generation = kGeneration;
    options.operation_timeout = kPatience;
    options.outgoing = options.incoming = std::make_shared<TokenBucket>();
    options.sent_bytes = options.received_bytes = &bytes_;
    options.lost = &lost_;
    options.open = std::make_shared<OpenCount>();
    options.frames = std::make_shared<FrameCounts>();
    options.regions = regions_;
    options.on_end = [this](const Status& status, bool /*lost*/) {
      in_news_ = channel_->Recv({.tag = 9, .space = 0}, {});
      ended_before_news_ = in_news_->Done();
      ended_.store(true);
      return status;
    };
    channel_ =
        std::make_shared<Channel>(loop_, std::make_unique<Scripted>(script_), std::move(options));
    channel_->Start();
  }
  void TearDown() override {
    channel_->Reset();
    loop_->Stop();
  }

  /// The loop has done everything that was due.
  void Settle() const {
    for (int i = 0; i < 3; ++i) {
      std::atomic<bool> done = false;
      loop_->RunAt(Now(), [&done] { done.store(true); });
      while (!done.load()) {
        std::this_thread::yield();
      }
    }
  }
  /// Until `done` or the end of patience.
  template <typename Condition>
  static bool WaitFor(const Condition& done) {
    for (const Deadline deadline = After(kPatience / 2); Now() < deadline;) {
      if (done()) {
        return true;
      }
      std::this_thread::yield();
    }
    return false;
  }

  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
  const std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>(nullptr);
  std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<Channel> channel_;
  std::atomic<bool> ended_ = false;
  std::shared_ptr<Operation> in_news_;  ///< Begun while the end is being told.
  bool ended_before_news_ = false;
  metrics::Counter bytes_;
  metrics::Counter lost_;
};

class LeavingTest : public ChannelTest, public testing::WithParamInterface<bool> {};

// The driver's turn ends exactly between two frames of another wait's message; the loop comes for
// the rest while the driver is still there, and leaves it to the driver; the driver goes, with a
// lease or without.
TEST_P(LeavingTest, WhatADriverLeavesIsTheLoops) {
  const Bytes large(16 << 20);
  Bytes small(8);
  const auto received = channel_->Recv({.tag = 1, .space = 0}, small);
  const auto sent = channel_->Send({.tag = 2, .space = 0}, large);
  ASSERT_TRUE(channel_->DriveOnce(*received, false, Now()).in_use);
  script_->Send(Frame(FrameKind::kGrant, 1, 0));
  ASSERT_TRUE(channel_->DriveOnce(*received, false, Now()).in_use);
  EXPECT_LT(script_->written.load(), large.size()) << "others have their turn";
  Settle();
  channel_->EndDrive(GetParam());
  EXPECT_TRUE(WaitFor([&] { return sent->Done(); })) << script_->written.load() << " bytes written";
}

INSTANTIATE_TEST_SUITE_P(Lease, LeavingTest, testing::Bool());

// A wait that goes on over other connections hides no peer's end.
TEST_F(ChannelTest, AnEndIsNoticedWhileADriverGoesOnElsewhere) {
  Bytes small(0);
  const auto received = channel_->Recv({.tag = 1, .space = 0}, small);
  ASSERT_TRUE(channel_->DriveOnce(*received, false, Now()).in_use);
  FrameHeader empty = Frame(FrameKind::kEager, 0, 0);
  empty.tag = 1;
  script_->Send(empty);
  ASSERT_TRUE(channel_->DriveOnce(*received, false, Now()).in_use);
  ASSERT_TRUE(received->Done());
  script_->End();
  const Operation elsewhere(kPatience, channel_);
  EXPECT_TRUE(WaitFor([&] {
    channel_->DriveOnce(elsewhere, false, Now());
    return ended_.load();
  }));
}

// Whoever hears of a loss by an operation can ask who was lost.
TEST_F(ChannelTest, NoOperationEndsBeforeTheNewsOfTheEnd) {
  script_->End();
  channel_->Start();
  ASSERT_TRUE(WaitFor([&] { return ended_.load(); }));
  EXPECT_FALSE(ended_before_news_);
  const Status status = in_news_->Wait(After(kPatience));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_NE(status.message().find("worker-1"), std::string::npos) << status.ToString();
}

TEST_F(ChannelTest, MessagesAreAnnouncedInOrderFromOne) {
  Bytes buffer(100);
  const auto received = channel_->Recv({.tag = 1, .space = 0}, buffer);
  FrameHeader request = Frame(FrameKind::kRequest, 0, buffer.size());
  request.tag = 2;
  script_->Send(request);
  channel_->Start();
  EXPECT_TRUE(WaitFor([&] { return ended_.load(); }));
  EXPECT_NE(received->Wait(After(kPatience)).message().find("announced"), std::string::npos);
}

/// A channel whose device may write into the peer's memory and ours.
class PlacementTest : public ChannelTest {
 protected:
  void SetUp() override {
    script_->places = true;
    ChannelTest::SetUp();
    auto buffer = regions_->Allocate(1 << 20);
    ASSERT_TRUE(buffer.ok());
    buffer_ = *std::move(buffer);
  }
  /// A Recv of which the peer has been told where its bytes go.
  std::shared_ptr<Operation> ExposedRecv() {
    auto received = channel_->Recv({.tag = 1, .space = 0}, buffer_.bytes());
    FrameHeader request = Frame(FrameKind::kRequest, 1, buffer_.bytes().size());
    request.tag = 1;
    script_->Send(request);
    channel_->Start();
    EXPECT_TRUE(WaitFor([&] { return script_->exposed.load() == 1; }));
    return received;
  }

  SharedBuffer buffer_;
};

TEST_F(PlacementTest, EndsWithTheFrameBehindIt) {
  const auto received = ExposedRecv();
  script_->Send(Frame(FrameKind::kPlaced, 1, 0));
  channel_->Start();
  EXPECT_TRUE(received->Wait(After(kPatience)).ok());
  EXPECT_EQ(script_->withdrawn.load(), 0);
}

// What was not exposed cannot have been written.
TEST_F(PlacementTest, OfAMessageInTheStreamIsRefused) {
  Bytes own(1 << 20);
  const auto received = channel_->Recv({.tag = 1, .space = 0}, own);
  FrameHeader request = Frame(FrameKind::kRequest, 1, own.size());
  request.tag = 1;
  script_->Send(request);
  script_->Send(Frame(FrameKind::kPlaced, 1, 0));
  channel_->Start();
  EXPECT_NE(received->Wait(After(kPatience)).message().find("placed"), std::string::npos);
  EXPECT_EQ(script_->exposed.load(), 0);
}

// The peer's abort comes on the other traffic class, whose end fails this one.
TEST_F(PlacementTest, ThatBreaksWaitsForTheOtherTrafficClasssNews) {
  const auto received = ExposedRecv();
  const Time begin = Now();
  script_->End();
  channel_->Start();
  Settle();
  EXPECT_TRUE(!ended_.load() || Now() - begin >= std::chrono::milliseconds(50));
  if (!ended_.load()) {
    channel_->Fail(AbortedError("worker-1 aborted: enough"));
    EXPECT_EQ(received->Wait(After(kPatience)).code(), StatusCode::kAborted);
  }
  EXPECT_GT(script_->withdrawn.load(), 0);
}

TEST_F(PlacementTest, ThatBreaksWithoutNewsIsALoss) {
  const auto received = ExposedRecv();
  script_->End();
  channel_->Start();
  const Status status = received->Wait(After(kPatience));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_GT(script_->withdrawn.load(), 0);
}

TEST_F(PlacementTest, IsTakenBackWhenItsWaitIsGivenUp) {
  const auto received = ExposedRecv();
  EXPECT_EQ(received->Wait(Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(script_->withdrawn.load(), 1);
}

// Two grants of one message would let the peer make room for requests that were never answered.
TEST_F(ChannelTest, AGrantIsGivenOnce) {
  const Bytes large(1 << 20);
  const auto sent = channel_->Send({.tag = 2, .space = 0}, large);
  script_->Send(Frame(FrameKind::kGrant, 1, 0));
  script_->Send(Frame(FrameKind::kGrant, 1, 0));
  channel_->Start();
  EXPECT_TRUE(WaitFor([&] { return ended_.load(); }));
}

}  // namespace
}  // namespace heddle::comm
