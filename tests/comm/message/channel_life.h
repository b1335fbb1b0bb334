/// \file
/// A channel over a wire in the test's hands (wire.h), and what it tells its owner.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/message/channel.h"
#include "comm/stream/event_loop.h"
#include "tests/comm/message/wire.h"

namespace heddle::comm {

inline constexpr int64_t kGeneration = 7;
inline constexpr Duration kPatience = std::chrono::minutes(2);

inline FrameHeader Frame(FrameKind kind, uint64_t id, uint64_t total, uint32_t length = 0) {
  FrameHeader header;
  header.generation = kGeneration;
  header.kind = kind;
  header.id = id;
  header.total = total;
  header.length = length;
  return header;
}
inline MessageKey Key(uint64_t tag) {
  return {.tag = tag, .space = 0};
}

class ChannelLifeTest : public testing::Test {
 protected:
  void SetUp() override { Make(false); }
  void Make(bool passes) {
    loop_ = *EventLoop::Create();
    ChannelOptions options;
    options.peer_name = "worker-1";
    options.generation = kGeneration;
    options.operation_timeout = kPatience;
    options.outgoing = outgoing_;
    options.incoming = std::make_shared<TokenBucket>();
    options.sent_bytes = &sent_;
    options.received_bytes = &received_;
    options.lost = &lost_;
    options.open = open_;
    options.frames = frames_;
    options.on_end = [this](const Status& status, bool lost) {
      const std::lock_guard lock(mutex_);
      ends_.emplace_back(status.ToString(), lost);
      return status;
    };
    channel_ = std::make_shared<Channel>(loop_, std::make_unique<WireEnd>(wire_, passes),
                                         std::move(options));
  }
  void TearDown() override {
    channel_->Reset();
    loop_->Stop();
  }
  void Settle() const {
    for (int i = 0; i < 3; ++i) {
      std::atomic<bool> done = false;
      loop_->RunAt(Now(), [&done] { done.store(true); });
      while (!done.load()) {
        std::this_thread::yield();
      }
    }
  }
  std::vector<std::pair<std::string, bool>> Ends() {
    const std::lock_guard lock(mutex_);
    return ends_;
  }
  /// Whether no channel counts as open any more.
  bool NoneOpen() const {
    const Time until = After(kPatience);
    open_->WaitForNone(until);
    return Now() < until;
  }
  static Status EndOf(const std::shared_ptr<Operation>& operation) {
    return operation->Wait(After(kPatience));
  }

  const std::shared_ptr<Wire> wire_ = std::make_shared<Wire>();
  const std::shared_ptr<TokenBucket> outgoing_ = std::make_shared<TokenBucket>();
  const std::shared_ptr<OpenCount> open_ = std::make_shared<OpenCount>();
  const std::shared_ptr<FrameCounts> frames_ = std::make_shared<FrameCounts>();
  metrics::Counter sent_;
  metrics::Counter received_;
  metrics::Counter lost_;
  std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<Channel> channel_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, bool>> ends_;
};

}  // namespace heddle::comm
