// Traffic classes, piece by piece: what one's messages prove about the other's, and which is served
// first.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "comm/group/call_diagnosis.h"
#include "comm/message/call_signature.h"
#include "comm/message/channel.h"
#include "comm/stream/event_loop.h"

namespace heddle::comm {
namespace {

TEST(FrameCountsTest, CountsMayWrap) {
  EXPECT_TRUE(HasCome(0, 0));
  EXPECT_TRUE(HasCome(7, 7));
  EXPECT_TRUE(HasCome(7, 8));
  EXPECT_FALSE(HasCome(8, 7));
  EXPECT_TRUE(HasCome(0xFFFF, 3));
  EXPECT_FALSE(HasCome(3, 0xFFFF));
}

/// A peer that has sent some bytes and says nothing more.
class Said : public Connection {
 public:
  explicit Said(Bytes bytes) : bytes_(std::move(bytes)) {}

  ConnectionInfo info() override { return {.transport = "said"}; }
  Result<size_t> Write(std::span<const iovec> parts) override {
    size_t size = 0;
    for (const iovec& part : parts) {
      size += part.iov_len;
    }
    return size;
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    const size_t size = std::min(buffer.size(), bytes_.size() - done_);
    std::memcpy(buffer.data(), bytes_.data() + done_, size);
    done_ += size;
    return size;
  }
  std::array<Watch, 2> Watches(bool /*want_read*/, bool /*want_write*/) override { return {}; }
  bool PrepareToWait(bool /*want_read*/, bool /*want_write*/) override {
    return done_ == bytes_.size();
  }
  void Close(Ending /*how*/) override {}

 private:
  const Bytes bytes_;
  size_t done_ = 0;
};

uint64_t SpaceOfCall(CallKind kind, uint64_t phase) {
  return SpaceOf(EncodeSignature({.kind = kind})) |
         phase << (kSignatureBits + kMajorBits + kMinorBits);
}

// A barrier's message overtakes the bulk of the all-reduce before it: that alone does not mean that
// the peer is in another call.
TEST(UnexpectedMessageTest, ProvesNothingBeforeTheOtherTrafficClassHasCaughtUp) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  FrameHeader barrier;
  barrier.kind = FrameKind::kEager;
  barrier.generation = 1;
  barrier.other_class = 3;
  barrier.tag = 9;
  barrier.space = SpaceOfCall(CallKind::kBarrier, 1);
  Bytes frame(sizeof(barrier));
  std::memcpy(frame.data(), &barrier, sizeof(barrier));

  metrics::Counter counter;
  ChannelOptions options;
  options.traffic_class = TrafficClass::kUrgent;
  options.peer_name = "worker-1";
  options.generation = 1;
  options.operation_timeout = std::chrono::minutes(2);
  options.outgoing = options.incoming = std::make_shared<TokenBucket>();
  options.sent_bytes = options.received_bytes = options.lost = &counter;
  options.open = std::make_shared<OpenCount>();
  const auto frames = options.frames = std::make_shared<FrameCounts>();
  const auto channel = std::make_shared<Channel>(*loop, std::make_unique<Said>(frame), options);
  channel->Start();
  const Time deadline = After(std::chrono::minutes(2));
  while (frames->received[IndexOf(TrafficClass::kUrgent)].load() < 1 && Now() < deadline) {
    std::this_thread::yield();
  }

  const auto find = [&](const CallNumber& call, bool other_waits, uint16_t other_received) {
    return FindOtherCall(channel->Inspect([&](const auto& key) { return OfCall(key, call); },
                                          [&](const auto& key) { return OfOtherCall(key, call); }),
                         other_waits, other_received);
  };
  const CallNumber all_reduce{.tag = 9, .space = SpaceOfCall(CallKind::kAllReduce, 2)};
  EXPECT_FALSE(find(all_reduce, true, 2).has_value()) << "a frame is under way";
  EXPECT_TRUE(find(all_reduce, true, 3).has_value());
  EXPECT_FALSE(find(all_reduce, false, 3).has_value()) << "nobody waits";
  const CallNumber same{.tag = 9, .space = barrier.space};
  EXPECT_FALSE(find(same, true, 3).has_value()) << "it is of this call";
  Bytes bulk(8);
  channel->Recv({.tag = 9, .space = SpaceOfCall(CallKind::kAllReduce, 2)}, bulk);
  EXPECT_TRUE(find(all_reduce, false, 0).has_value()) << "in one traffic class order is enough";
  channel->Reset();
  (*loop)->Stop();
}

// Among what is ready at one time, whatever became ready first.
TEST(EventLoopTest, UrgentWatchesComeFirst) {
  const auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  const UniqueFd bulk(::eventfd(0, EFD_CLOEXEC));
  const UniqueFd urgent(::eventfd(0, EFD_CLOEXEC));
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> called;
  const auto watch = [&](int fd, bool first) {
    (*loop)->Add(
        fd, EPOLLIN | EPOLLET,
        [&, fd](uint32_t) {
          const std::lock_guard lock(mutex);
          called.push_back(fd);
          changed.notify_all();
        },
        first);
  };
  watch(bulk.get(), false);
  watch(urgent.get(), true);
  (*loop)->Post([&] {  // On the loop's thread: both are ready when it looks again.
    const uint64_t one = 1;
    for (const int fd : {bulk.get(), urgent.get()}) {
      EXPECT_EQ(::write(fd, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    }
  });
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(
        changed.wait_for(lock, std::chrono::minutes(2), [&] { return called.size() == 2; }));
  }
  EXPECT_EQ(called, (std::vector<int>{urgent.get(), bulk.get()}));
  (*loop)->Stop();
}

}  // namespace
}  // namespace heddle::comm
