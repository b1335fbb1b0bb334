// Our `syscall` in place of the C library's. That a set clock stretches no wait shows
// integration.clock; here, that nothing else is another's.
#include "elastic/grpc/connection/monotonic_waits.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/unique_fd.h"
#include "base/thread.h"

namespace heddle::elastic {
namespace {

constexpr int kAbseilsWait = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;
constexpr long kNanosecondsPerSecond = 1'000'000'000;

// The error that a wait at `word` until `until` ends with while it holds `value`; 0: it was woken.
int Wait(const std::atomic<int>& word, int value, const timespec* until) {
  KeepWaitsMonotonic();
  return ::syscall(SYS_futex, &word, kAbseilsWait, value, until, nullptr, FUTEX_BITSET_MATCH_ANY) ==
                 0
             ? 0
             : errno;
}

timespec FromNow(long nanoseconds) {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  time.tv_nsec += nanoseconds;
  time.tv_sec += time.tv_nsec / kNanosecondsPerSecond;
  time.tv_nsec %= kNanosecondsPerSecond;
  return time;
}

TEST(MonotonicWaitsTest, AWaitEndsAtItsTimeAndNotBefore) {
  const std::atomic<int> word = 0;
  for (const long milliseconds : {1L, 30L, 999L}) {
    const Time begun = Now();
    const timespec until = FromNow(milliseconds * 1'000'000);
    EXPECT_EQ(Wait(word, 0, &until), ETIMEDOUT);
    EXPECT_GE(Now() - begun, std::chrono::milliseconds(milliseconds));
  }
}

TEST(MonotonicWaitsTest, WhatIsPastEndsAtOnce) {
  const std::atomic<int> word = 0;
  for (const timespec until : {timespec{}, timespec{.tv_sec = 0, .tv_nsec = 1}, FromNow(0)}) {
    EXPECT_EQ(Wait(word, 0, &until), ETIMEDOUT);
  }
  // Fractions of a second before and after that of the moment, by either clock.
  const timespec now = FromNow(0);
  for (long nanoseconds = 0; nanoseconds < kNanosecondsPerSecond; nanoseconds += 50'000'000) {
    const timespec until{.tv_sec = now.tv_sec - 1, .tv_nsec = nanoseconds};
    EXPECT_EQ(Wait(word, 0, &until), ETIMEDOUT) << nanoseconds;
  }
}

TEST(MonotonicWaitsTest, ATimeThatNoSumHoldsIsForEver) {
  std::atomic<int> word = 0;
  for (const timespec until :
       {timespec{.tv_sec = std::numeric_limits<time_t>::max(),
       .tv_nsec = kNanosecondsPerSecond - 1},
        timespec{.tv_sec = std::numeric_limits<time_t>::max() / 2, .tv_nsec = 0}}) {
    std::atomic<bool> woken = false;
    std::atomic<int> error = -1;
    Thread waiter("waiter", [&] {
      error = Wait(word, 0, &until);
      woken = true;
    });
    while (!woken) {
      ::syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
      std::this_thread::yield();
    }
    waiter.Join();
    EXPECT_EQ(error, 0);
  }
}

TEST(MonotonicWaitsTest, WhatTheKernelRefusesItRefuses) {
  const std::atomic<int> word = 1;
  const timespec until = FromNow(kNanosecondsPerSecond);
  EXPECT_EQ(Wait(word, 0, &until), EAGAIN);
  for (const timespec bad :
       {timespec{.tv_sec = 0, .tv_nsec = kNanosecondsPerSecond},
        timespec{.tv_sec = 0, .tv_nsec = -1}, timespec{.tv_sec = -1, .tv_nsec = 0}}) {
    EXPECT_EQ(Wait(word, 0, &bad), EINVAL) << bad.tv_sec << ' ' << bad.tv_nsec;
    EXPECT_EQ(Wait(word, 1, &bad), EINVAL) << bad.tv_sec << ' ' << bad.tv_nsec;
  }
  EXPECT_EQ(Wait(word, 1, reinterpret_cast<const timespec*>(uintptr_t{8})), EFAULT);
}

TEST(MonotonicWaitsTest, AllElsePassesWithAllArguments) {
  EXPECT_EQ(::syscall(SYS_getpid), ::getpid());
  EXPECT_EQ(::syscall(SYS_close, -1), -1);
  EXPECT_EQ(errno, EBADF);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const std::string path = ::testing::TempDir() + "monotonic-waits-" + std::to_string(::getpid());
  std::ofstream(path) << std::string(page, 'a') << std::string(page, 'b');
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const long second = ::syscall(SYS_mmap, nullptr, page, PROT_READ, MAP_PRIVATE, file.get(), page);
  ASSERT_NE(second, -1);
  EXPECT_EQ(*reinterpret_cast<const char*>(second), 'b') << "the sixth argument";
  ::munmap(reinterpret_cast<void*>(second), page);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace heddle::elastic
