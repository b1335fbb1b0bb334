// The loop's thread: what is called back on it, in which order, and what is no more.
#include "comm/stream/event_loop.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

namespace heddle::comm {
namespace {

UniqueFd Event(uint64_t count) {
  return UniqueFd(::eventfd(static_cast<unsigned>(count), EFD_CLOEXEC | EFD_NONBLOCK));
}

bool WaitFor(const std::function<bool()>& done) {
  for (const Deadline deadline = After(std::chrono::minutes(2)); Now() < deadline;) {
    if (done()) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

class EventLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok()) << loop.status().ToString();
    loop_ = *std::move(loop);
  }
  void TearDown() override { loop_->Stop(); }
  /// Runs `function` on the loop and waits for its end.
  void On(const std::function<void()>& function) {
    std::atomic<bool> done = false;
    loop_->Post([&] {
      function();
      done.store(true);
    });
    ASSERT_TRUE(WaitFor([&] { return done.load(); }));
  }

  std::shared_ptr<EventLoop> loop_;
};

TEST_F(EventLoopTest, WhatIsPostedRunsInOrderOnItsThread) {
  std::vector<int> order;
  bool there = false;
  for (int i = 0; i < 3; ++i) {
    loop_->Post([&order, i] { order.push_back(i); });
  }
  On([&] { there = loop_->OnLoopThread(); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(there);
  EXPECT_FALSE(loop_->OnLoopThread());
}

TEST_F(EventLoopTest, WhatIsPostedFromItsThreadRunsAfterwards) {
  std::atomic<int> ran = 0;
  On([&] {
    loop_->Post([&] { ran.store(2); });
    ran.store(1);
  });
  EXPECT_TRUE(WaitFor([&] { return ran.load() == 2; }));
}

TEST_F(EventLoopTest, TimersRunInTheOrderOfTheirTimesAndNotBefore) {
  std::vector<int> order;
  std::atomic<bool> early = false;
  std::atomic<bool> all = false;
  On([&] {  // In one go, so that none is due before all are there.
    const Time now = Now();
    const auto at = [&](int milliseconds) {
      const Time time = now + std::chrono::milliseconds(milliseconds);
      loop_->RunAt(time, [&, milliseconds, time] {
        order.push_back(milliseconds);
        early.store(early.load() || Now() < time);
        all.store(milliseconds == 9);
      });
    };
    for (const int milliseconds : {9, 3, 0, 6}) {
      at(milliseconds);
    }
  });
  ASSERT_TRUE(WaitFor([&] { return all.load(); }));
  On([&] { EXPECT_EQ(order, (std::vector<int>{0, 3, 6, 9})); });
  EXPECT_FALSE(early.load());
}

// It sleeps until the timer that was set meanwhile, not until the one that it knew.
TEST_F(EventLoopTest, ATimerThatIsSetWhileItSleepsWakesIt) {
  std::atomic<bool> late = false;
  std::atomic<bool> ran = false;
  loop_->RunAt(After(std::chrono::hours(1)), [&] { late.store(true); });
  On([] {});
  loop_->RunAt(After(std::chrono::milliseconds(1)), [&] { ran.store(true); });
  EXPECT_TRUE(WaitFor([&] { return ran.load(); }));
  EXPECT_FALSE(late.load());
}

TEST_F(EventLoopTest, AWatchIsCalledWithWhatIsReadyUntilItIsRemoved) {
  const UniqueFd event = Event(0);
  std::atomic<int> calls = 0;
  std::atomic<uint32_t> seen = 0;
  const uint64_t watch = loop_->Add(event.get(), EPOLLIN, [&](uint32_t events) {
    uint64_t count = 0;
    EXPECT_EQ(::read(event.get(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
    seen.store(events);
    ++calls;
  });
  EXPECT_NE(watch, 0U);
  const uint64_t one = 1;
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  ASSERT_TRUE(WaitFor([&] { return calls.load() == 1; }));
  EXPECT_EQ(seen.load(), static_cast<uint32_t>(EPOLLIN));
  loop_->Remove(watch, event.get());
  On([] {});
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  On([] {});
  EXPECT_EQ(calls.load(), 1);
  loop_->Remove(watch, event.get());  // Again: nothing happens.
  const uint64_t next = loop_->Add(event.get(), 0, [&](uint32_t) { ++calls; });
  EXPECT_NE(next, watch);
  On([] {});
  EXPECT_EQ(calls.load(), 1) << "it waits for nothing";
  loop_->Modify(next, event.get(), EPOLLOUT);
  EXPECT_TRUE(WaitFor([&] { return calls.load() > 1; })) << "it is always ready to write";
  loop_->Remove(next, event.get());
}

TEST_F(EventLoopTest, OfWhatIsReadyAtOnceTheFirstOnesComeFirst) {
  std::vector<UniqueFd> events;
  std::vector<uint64_t> watches;
  std::vector<int> order;
  On([&] {  // All are ready before the loop looks.
    for (int i = 0; i < 6; ++i) {
      events.push_back(Event(1));
      const int fd = events.back().get();
      watches.push_back(loop_->Add(
          fd, EPOLLIN,
          [&order, fd, i](uint32_t) {
            uint64_t count = 0;
            if (::read(fd, &count, sizeof(count)) > 0) {
              order.push_back(i);
            }
          },
          i % 2 == 1));
    }
  });
  On([] {});
  On([&] {
    ASSERT_EQ(order.size(), 6U);
    for (size_t at = 0; at < order.size(); ++at) {
      EXPECT_EQ(order[at] % 2, at < 3 ? 1 : 0) << at;
    }
  });
  for (size_t i = 0; i < events.size(); ++i) {
    loop_->Remove(watches[i], events[i].get());
  }
}

TEST_F(EventLoopTest, OneThatRemovesAnotherIsTheLastToBeCalled) {
  const UniqueFd one = Event(1);
  const UniqueFd other = Event(1);
  uint64_t watches[2] = {};
  int calls = 0;
  On([&] {
    for (int i = 0; i < 2; ++i) {
      watches[i] = loop_->Add(i == 0 ? one.get() : other.get(), EPOLLIN, [&](uint32_t) {
        ++calls;
        loop_->Remove(watches[0], one.get());
        loop_->Remove(watches[1], other.get());
      });
    }
  });
  On([] {});
  On([&] { EXPECT_EQ(calls, 1); });
}

TEST_F(EventLoopTest, StoppingDropsEveryCallback) {
  const auto kept = std::make_shared<int>(0);
  const UniqueFd event = Event(0);
  loop_->Add(event.get(), EPOLLIN, [kept](uint32_t) { ++*kept; });
  loop_->RunAt(After(std::chrono::hours(1)), [kept] { ++*kept; });
  EXPECT_EQ(kept.use_count(), 3);
  loop_->Stop();
  EXPECT_EQ(kept.use_count(), 1);
  loop_->Post([kept] { ++*kept; });
  loop_->RunAt(Now(), [kept] { ++*kept; });
  EXPECT_EQ(kept.use_count(), 1) << "what comes later is dropped at once";
  loop_->Stop();
  EXPECT_EQ(*kept, 0);
}

}  // namespace
}  // namespace heddle::comm
