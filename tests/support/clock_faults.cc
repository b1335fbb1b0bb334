/// \file
/// A library for LD_PRELOAD that lets the wall clock of one process jump while it runs:
///
///   HEDDLE_CLOCK_FILE  a file of 24 bytes, three integers of 64 bits: by how many nanoseconds the
///                      wall clock is off, which a test writes at any time; how often a caller was
///                      given a time that is off; and how many waits had their end moved by it
///
/// Only CLOCK_REALTIME is off. Whoever waits until a time by it (a futex, as Abseil's and hence
/// gRPC's waits are) wakes when the clock that is off has reached it, as the kernel does with its
/// own: too early after a jump ahead, too late after one back. Nothing here allocates.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMaxSeconds = 4'000'000'000;  // Who waits until then waits for ever.
// A wait looks so often whether the clock has jumped.
constexpr int64_t kLook = kSecond / 10;

struct Shared {
  std::atomic<int64_t> off;
  std::atomic<int64_t> given;
  std::atomic<int64_t> moved;
};

using ClockCall = int (*)(clockid_t, timespec*);
using SystemCall = long (*)(long, ...);
Shared* shared = nullptr;

// The C library's own, found when it is first needed: other libraries' constructors ask for the
// time.
template <typename Function>
Function Next(std::atomic<void*>& found, const char* name) {
  void* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = ::dlsym(RTLD_NEXT, name);
    found = function;
  }
  return reinterpret_cast<Function>(function);
}
std::atomic<void*> next_clock = nullptr;
std::atomic<void*> next_call = nullptr;

int RealClock(clockid_t clock, timespec* time) {
  return Next<ClockCall>(next_clock, "clock_gettime")(clock, time);
}
SystemCall RealCall() {
  return Next<SystemCall>(next_call, "syscall");
}

__attribute__((constructor)) void ReadSettings() {
  const char* const path = std::getenv("HEDDLE_CLOCK_FILE");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  shared = memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

int64_t Nanoseconds(const timespec& time) {
  return std::min<int64_t>(time.tv_sec, kMaxSeconds) * kSecond + time.tv_nsec;
}
timespec ToTimespec(int64_t nanoseconds) {
  return {.tv_sec = nanoseconds / kSecond, .tv_nsec = nanoseconds % kSecond};
}

int64_t RealNow() {
  timespec now{};
  RealClock(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

// The wall clock as this process sees it.
int64_t WallNow() {
  const int64_t off = shared == nullptr ? 0 : shared->off.load(std::memory_order_relaxed);
  if (off != 0) {
    ++shared->given;
  }
  return RealNow() + off;
}

bool IsWall(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

/// A futex's wait until `until` by the wall clock, in pieces that notice a jump.
long WaitUntil(const long (&arguments)[6], const timespec* until) {
  const int64_t end = Nanoseconds(*until);
  const int64_t off = shared->off;
  bool counted = false;
  for (;;) {
    const int64_t left = end - (RealNow() + shared->off);
    const timespec piece = ToTimespec(std::max<int64_t>(RealNow() + std::min(left, kLook), 0));
    const long result = RealCall()(SYS_futex, arguments[0], arguments[1], arguments[2], &piece,
                                   arguments[4], arguments[5]);
    if (!counted && shared->off != off) {
      counted = true;
      ++shared->moved;
    }
    if (result == 0 || errno != ETIMEDOUT || RealNow() + shared->off >= end) {
      return result;
    }
  }
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming, readability-inconsistent-declaration-parameter-name):
// the names are the C library's.
extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (shared == nullptr || !IsWall(clock)) {
    return RealClock(clock, time);
  }
  *time = ToTimespec(WallNow());
  return 0;
}

int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  const int64_t now = WallNow();
  time->tv_sec = now / kSecond;
  time->tv_usec = now % kSecond / 1000;
  return 0;
}

time_t time(time_t* result) noexcept {
  const time_t now = WallNow() / kSecond;
  if (result != nullptr) {
    *result = now;
  }
  return now;
}

long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6] = {};
  for (long& argument : arguments) {
    argument = va_arg(list, long);
  }
  va_end(list);
  if (shared != nullptr && number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 &&
      (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && arguments[3] != 0) {
    return WaitUntil(arguments, reinterpret_cast<const timespec*>(arguments[3]));
  }
  if (shared != nullptr && number == SYS_clock_gettime &&
      IsWall(static_cast<clockid_t>(arguments[0]))) {
    return clock_gettime(static_cast<clockid_t>(arguments[0]),
                         reinterpret_cast<timespec*>(arguments[1]));
  }
  return RealCall()(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                    arguments[5]);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming, readability-inconsistent-declaration-parameter-name)
