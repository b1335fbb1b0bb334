// A peer that has proved who it is and then sends frames that nobody should: random kinds, numbers
// and lengths, in part what a well-meaning peer would send, in part damaged. Whatever comes, the
// channel ends with an error or goes on; it touches no memory but the buffers that were posted, and
// every operation ends.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/message/channel.h"
#include "comm/stream/event_loop.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::comm {
namespace {

constexpr int64_t kGeneration = 7;
constexpr size_t kStreamFrames = 400;
constexpr int kTags = 4;
/// Messages to the peer that ask first, and so have the numbers 1, 2 …
constexpr uint64_t kBulkSends = 3;

int64_t FramesWanted() {
  const char* text = std::getenv("HEDDLE_FUZZED_FRAMES");
  return text != nullptr ? std::atoll(text) : testing::Scaled<int64_t>(20'000, 100'000, 1'000'000);
}

/// A peer's stream, frame by frame; what is written to it is dropped.
class Stream : public Connection {
 public:
  Stream(std::deque<Bytes> frames, const std::atomic<bool>& begins, int64_t& taken)
      : frames_(std::move(frames)),
        begins_(begins),
        taken_(taken) {}

  ConnectionInfo info() override { return {.transport = "fuzz"}; }
  Result<size_t> Write(std::span<const iovec> parts) override {
    size_t size = 0;
    for (const iovec& part : parts) {
      size += part.iov_len;
    }
    return size;
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    if (!begins_.load()) {
      return size_t{0};
    }
    if (frames_.empty()) {
      return UnavailableError("the peer closed the connection");
    }
    const size_t size = std::min(buffer.size(), frames_.front().size() - done_);
    std::memcpy(buffer.data(), frames_.front().data() + done_, size);
    done_ += size;
    if (done_ == frames_.front().size()) {
      ++taken_;
      frames_.pop_front();
      done_ = 0;
    }
    return size;
  }
  std::array<Watch, 2> Watches(bool /*want_read*/, bool /*want_write*/) override { return {}; }
  bool PrepareToWait(bool /*want_read*/, bool /*want_write*/) override { return false; }
  void Close(Ending how) override {
    if (how == Ending::kAtOnce) {
      frames_.clear();
    }
  }

 private:
  std::deque<Bytes> frames_;
  size_t done_ = 0;
  const std::atomic<bool>& begins_;
  int64_t& taken_;
};

/// What the peer sends.
class Peer {
 public:
  explicit Peer(Random& random) : random_(random) {}

  std::deque<Bytes> Frames() {
    std::deque<Bytes> frames;
    // Most streams are well-formed for long, so that what is damaged meets a channel with a past.
    const auto damage_one_in = static_cast<int64_t>(Pick({20, 200, 2000, 100'000}));
    while (frames.size() < kStreamFrames) {
      frames.push_back(OneFrame());
      if (random_.Below(static_cast<uint64_t>(damage_one_in)) == 0) {
        Damage(frames.back());
      }
    }
    return frames;
  }

 private:
  uint64_t Pick(std::initializer_list<uint64_t> values) {
    return values.begin()[random_.Below(values.size())];
  }

  Bytes OneFrame() {
    FrameHeader header;
    header.generation = kGeneration;
    header.tag = random_.Below(kTags);
    header.space = random_.Below(8) == 0 ? random_.Next() : 0;
    const bool rude = random_.Below(200) == 0;
    switch (random_.Below(16)) {
      case 0:
        header.kind = random_.Below(4) == 0 ? FrameKind::kReject : FrameKind::kGrant;
        header.id = rude ? random_.Next() : granted_++;
        header.total = random_.Below(1000);
        if (!rude && header.id > kBulkSends) {
          header.kind = FrameKind::kCredit;
          header.total = 0;
        }
        break;
      case 1:
        header.kind = FrameKind::kCredit;
        header.total = rude ? random_.Next() : 0;
        break;
      case 2:
        header.kind = rude ? FrameKind::kPlaced : FrameKind::kWaiting;
        header.id = random_.Below(5);
        header.total = random_.Next();
        header.space = random_.Next();
        break;
      case 3:
      case 4:
        header.kind = FrameKind::kRequest;
        header.id = next_id_++;
        header.total = Pick({100, 100'000, 100'000, 1 << 20, uint64_t{1} << 62, random_.Next()});
        break;
      case 5:
      case 6:
        header.kind = FrameKind::kData;
        header.id = 1 + random_.Below(next_id_);
        header.length = static_cast<uint32_t>(rude ? Pick({0, 60'000}) : Pick({50, 50}));
        break;
      case 7:
        if (rude) {
          header.kind = random_.Below(2) == 0 ? FrameKind::kAbort : FrameKind::kGoodbye;
          header.length = header.kind == FrameKind::kAbort
                              ? static_cast<uint32_t>(random_.Below(kAbortTextBytes + 1))
                              : 0;
          break;
        }
        [[fallthrough]];
      default:
        header.kind = FrameKind::kEager;
        header.length = static_cast<uint32_t>(rude ? Pick({3000, kEagerBytes}) : Pick({0, 1, 100}));
        header.total = header.length;
    }
    Bytes frame(sizeof(header) + header.length, std::byte{0x5A});
    std::memcpy(frame.data(), &header, sizeof(header));
    return frame;
  }

  void Damage(Bytes& frame) {
    switch (random_.Below(4)) {
      case 0:
        frame.resize(random_.Below(frame.size()) + 1);
        break;
      case 1:
        frame.insert(frame.end(), 1 + random_.Below(100), std::byte{0xA5});
        break;
      default:
        for (uint64_t i = 0; i <= random_.Below(3); ++i) {
          frame[random_.Below(sizeof(FrameHeader))] = static_cast<std::byte>(random_.Next());
        }
    }
  }

  Random& random_;
  uint64_t next_id_ = 1;
  uint64_t granted_ = 1;
};

/// Posted memory with a margin that nothing may touch.
struct Buffer {
  explicit Buffer(size_t size) : bytes(size + 2 * kMargin, std::byte{0xEE}) {}
  std::span<std::byte> body() {
    return std::span(bytes).subspan(kMargin, bytes.size() - 2 * kMargin);
  }
  bool Intact() const {
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xEE}; };
    return std::all_of(bytes.begin(), bytes.begin() + kMargin, untouched) &&
           std::all_of(bytes.end() - kMargin, bytes.end(), untouched);
  }
  static constexpr ptrdiff_t kMargin = 64;
  Bytes bytes;
};

class FramesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = *std::move(loop);
  }
  void TearDown() override { loop_->Stop(); }

  /// One connection, from its first frame to its end.
  void One(Random& random) {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> end;
    std::atomic<bool> begins = false;
    ChannelOptions options;
    options.peer = 1;
    options.peer_name = "worker-1";
    options.generation = kGeneration;
    options.operation_timeout = std::chrono::minutes(2);
    options.outgoing = options.incoming = std::make_shared<TokenBucket>();
    options.sent_bytes = options.received_bytes = &bytes_;
    options.lost = &lost_;
    const auto open = std::make_shared<OpenCount>();
    options.open = open;
    options.frames = std::make_shared<FrameCounts>();
    options.on_end = [&](const Status& status, bool /*lost*/) {
      const std::lock_guard lock(mutex);
      end = status;
      changed.notify_all();
      return status;
    };
    const auto channel = std::make_shared<Channel>(
        loop_, std::make_unique<Stream>(Peer(random).Frames(), begins, taken_), std::move(options));
    channel->Start();
    std::deque<Buffer> buffers;
    std::vector<std::shared_ptr<Operation>> operations;
    for (int i = 0; i < 24; ++i) {
      const size_t size =
          std::array<size_t, 8>{0, 1, 1, 100, 100, 100, 3000, 100'000}[random.Below(8)];
      const MessageKey key{.tag = random.Below(kTags), .space = 0};
      operations.push_back(channel->Recv(key, buffers.emplace_back(size).body()));
    }
    for (uint64_t i = 0; i < 2 * kBulkSends; ++i) {
      const size_t size = i % 2 == 0 ? 70'000 : 100;
      operations.push_back(channel->Send({.tag = random.Below(kTags), .space = 0},
                                         buffers.emplace_back(size).body()));
    }
    begins.store(true);
    {
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, std::chrono::minutes(2), [&] { return end.has_value(); }));
      EXPECT_TRUE(end->code() == StatusCode::kUnavailable || end->code() == StatusCode::kAborted)
          << end->ToString();
      EXPECT_NE(end->message().find("worker-1"), std::string::npos) << end->ToString();
    }
    for (const auto& operation : operations) {
      operation->Wait(After(std::chrono::minutes(2))).IgnoreError("any end will do");
      EXPECT_TRUE(operation->Done());
    }
    for (const Buffer& buffer : buffers) {
      EXPECT_TRUE(buffer.Intact());
    }
    open->WaitForNone(After(std::chrono::minutes(2)));
    EXPECT_TRUE(channel->closed());
    ++connections_;
  }

  std::shared_ptr<EventLoop> loop_;
  metrics::Counter bytes_;
  metrics::Counter lost_;
  int64_t taken_ = 0;
  int64_t connections_ = 0;
};

TEST_F(FramesTest, WhateverComesEndsItsConnectionAtMost) {
  Random random(testing::TestSeed());
  while (taken_ < FramesWanted() && !HasFailure()) {
    One(random);
  }
  std::cout << taken_ << " frames in " << connections_ << " connections, " << lost_.Value()
            << " lost\n";
  EXPECT_GT(taken_, 20 * connections_) << "most frames of a stream are read";
}

}  // namespace
}  // namespace heddle::comm
