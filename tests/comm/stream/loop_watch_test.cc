// Whether the loop or a caller's thread moves a channel, and what epoll watches for it.
#include "comm/stream/loop_watch.h"

#include <array>
#include <atomic>
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

/// Whoever is called remembers it.
struct Called final : Watched {
  void HandleReady(int fd, uint32_t events) override {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd, &count, sizeof(count));
    ready_fd.store(fd);
    ready_events.store(events);
    ++ready;
  }
  void HandleTimer(Time time) override {
    timer.store(time);
    ++timers;
  }
  std::atomic<int> ready = 0;
  std::atomic<int> ready_fd = -1;
  std::atomic<uint32_t> ready_events = 0;
  std::atomic<Time> timer{};
  std::atomic<int> timers = 0;
};

/// A connection of up to two descriptors.
struct TwoWatches final : Connection {
  ConnectionInfo info() override { return {.transport = "test"}; }
  Result<size_t> Write(std::span<const iovec> /*parts*/) override { return size_t{0}; }
  Result<size_t> Read(std::span<std::byte> /*buffer*/) override { return size_t{0}; }
  std::array<Watch, 2> Watches(bool want_read, bool want_write) override {
    read_wanted = want_read;
    write_wanted = want_write;
    return {Watch{.fd = event.get(), .events = want_read ? EPOLLIN : 0U}, Watch{}};
  }
  void Close(Ending /*how*/) override {}

  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  bool read_wanted = false;
  bool write_wanted = false;
};

class LoopWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = *std::move(loop);
    watch_ = std::make_unique<LoopWatch>(loop_, false);
    watch_->Start(called_);
  }
  void TearDown() override {
    watch_->Unwatch();
    loop_->Stop();
  }
  void Settle() const {
    std::atomic<bool> done = false;
    loop_->Post([&] { done.store(true); });
    while (!done.load()) {
      std::this_thread::yield();
    }
  }
  template <typename Condition>
  static bool WaitFor(const Condition& done) {
    for (const Deadline deadline = After(std::chrono::minutes(2)); Now() < deadline;) {
      if (done()) {
        return true;
      }
      std::this_thread::yield();
    }
    return false;
  }
  void Raise(const TwoWatches& connection) const {
    const uint64_t one = 1;
    ASSERT_EQ(::write(connection.event.get(), &one, sizeof(one)),
              static_cast<ssize_t>(sizeof(one)));
  }

  std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<Called> called_ = std::make_shared<Called>();
  std::unique_ptr<LoopWatch> watch_;
};

TEST_F(LoopWatchTest, OnlyTheEarliestTimerCounts) {
  const Time later = After(std::chrono::hours(2));
  const Time sooner = After(std::chrono::hours(1));
  watch_->RunAt(later);
  watch_->RunAt(sooner);
  watch_->RunAt(later);
  EXPECT_FALSE(watch_->TakeTimer(later)) << "an earlier one was asked for";
  EXPECT_TRUE(watch_->TakeTimer(sooner));
  EXPECT_FALSE(watch_->TakeTimer(sooner)) << "it is taken";
  const Time now = Now();
  watch_->RunAt(now);
  ASSERT_TRUE(WaitFor([&] { return called_->timers.load() == 1; }));
  EXPECT_EQ(called_->timer.load(), now);
  EXPECT_TRUE(watch_->TakeTimer(now));
}

TEST_F(LoopWatchTest, WhoIsGoneIsNotCalled) {
  auto gone = std::make_shared<Called>();
  LoopWatch watch(loop_, false);
  EXPECT_FALSE(watch.started());
  watch.Start(gone);
  EXPECT_TRUE(watch.started());
  EXPECT_EQ(&watch.loop(), loop_.get());
  TwoWatches connection;
  watch.Rearm(connection, true, false);
  watch.RunAt(Now() + std::chrono::milliseconds(1));
  gone = nullptr;
  Raise(connection);
  Settle();
  watch.Unwatch();
  Settle();
}

TEST_F(LoopWatchTest, EpollWatchesWhatIsWanted) {
  TwoWatches connection;
  watch_->Rearm(connection, false, true);
  EXPECT_FALSE(connection.read_wanted);
  EXPECT_TRUE(connection.write_wanted);
  Raise(connection);
  Settle();
  EXPECT_EQ(called_->ready.load(), 0) << "nobody wants to read";
  watch_->Rearm(connection, true, false);
  EXPECT_TRUE(connection.read_wanted);
  EXPECT_FALSE(connection.write_wanted);
  ASSERT_TRUE(WaitFor([&] { return called_->ready.load() == 1; }));
  EXPECT_EQ(called_->ready_fd.load(), connection.event.get());
  EXPECT_EQ(called_->ready_events.load(), static_cast<uint32_t>(EPOLLIN));
  watch_->Rearm(connection, true, false);  // As it is.
  watch_->Rearm(connection, false, false);
  Settle();
  Raise(connection);
  Settle();
  EXPECT_EQ(called_->ready.load(), 1);
  watch_->Unwatch();
  watch_->Unwatch();
  watch_->Rearm(connection, true, false);
  EXPECT_TRUE(WaitFor([&] { return called_->ready.load() == 2; })) << "watched anew";
}

TEST_F(LoopWatchTest, ADriverHasItAndALeaseKeepsItForAMoment) {
  EXPECT_FALSE(watch_->HeldByCaller());
  EXPECT_TRUE(watch_->BeginDrive()) << "the loop had it";
  EXPECT_FALSE(watch_->BeginDrive()) << "a caller has it already";
  EXPECT_TRUE(watch_->driven());
  watch_->EndLeaseIfOver();
  EXPECT_TRUE(watch_->HeldByCaller()) << "there is no lease that could be over";
  watch_->EndDrive(false);
  EXPECT_FALSE(watch_->driven());
  EXPECT_FALSE(watch_->HeldByCaller());
  EXPECT_EQ(called_->timers.load(), 0);
  watch_->BeginDrive();
  const Time before = Now();
  watch_->EndDrive(true);
  EXPECT_FALSE(watch_->driven());
  EXPECT_TRUE(watch_->HeldByCaller());
  EXPECT_GT(watch_->leased_until(), before);
  EXPECT_LE(watch_->leased_until(), Now() + std::chrono::microseconds(500));
  ASSERT_TRUE(WaitFor([&] { return called_->timers.load() == 1; })) << "the loop looks again";
  EXPECT_EQ(called_->timer.load(), watch_->leased_until());
  ASSERT_TRUE(WaitFor([&] { return Now() > watch_->leased_until(); }));
  watch_->EndLeaseIfOver();
  EXPECT_FALSE(watch_->HeldByCaller());
}

TEST_F(LoopWatchTest, ALeaseEndsWhenADriverComesOrItIsEnded) {
  watch_->BeginDrive();
  watch_->EndDrive(true);
  EXPECT_FALSE(watch_->BeginDrive()) << "it was still the caller's";
  EXPECT_EQ(watch_->leased_until(), Time());
  watch_->EndDrive(true);
  watch_->EndLease();
  EXPECT_FALSE(watch_->HeldByCaller());
  EXPECT_TRUE(watch_->BeginDrive());
}

// To wake the loop for each lease would cost more than to let a timer that comes soon do.
TEST_F(LoopWatchTest, ALeaseUsesATimerThatComesSoonEnough) {
  const Time soon = After(std::chrono::microseconds(10));
  watch_->RunAt(soon);
  watch_->BeginDrive();
  watch_->EndDrive(true);
  EXPECT_TRUE(watch_->TakeTimer(soon)) << "no other one was set";
}

}  // namespace
}  // namespace heddle::comm
