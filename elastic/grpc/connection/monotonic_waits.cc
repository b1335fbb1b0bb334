#include "elastic/grpc/connection/monotonic_waits.h"

#include <cerrno>
#include <cstdarg>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace heddle::elastic {

void KeepWaitsMonotonic() {}

}  // namespace heddle::elastic

#if defined(__x86_64__)

// What is called before main, and before a sanitizer is ready, is not instrumented.
#define HEDDLE_PLAIN __attribute__((no_sanitize("address", "thread", "undefined")))

namespace heddle::elastic {
namespace {

constexpr long kAbseilsWait = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;
constexpr long kNanosecondsPerSecond = 1'000'000'000;
constexpr time_t kForEver = 1'000'000'000;  // Seconds. No sum of two such overflows.
constexpr long kMaxErrors = 4095;           // Other negative results are addresses.

// Makes a system call. Returns its result; an error is its negative number.
HEDDLE_PLAIN long Kernel(long number, long a, long b, long c, long d, long e, long f) {
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  register long sixth asm("r9") = f;
  long result = 0;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  return result;
}

// True if `until` points to a time that the kernel accepts. The kernel checks the time before it
// compares the value, which differs, so that this wait ends at once.
HEDDLE_PLAIN bool IsTime(long until) {
  const int value = 1;
  return Kernel(SYS_futex, reinterpret_cast<long>(&value), kAbseilsWait, 0, until, 0,
                static_cast<long>(FUTEX_BITSET_MATCH_ANY)) == -EAGAIN;
}

// Converts the time `wall` of the wall clock to the monotonic clock.
HEDDLE_PLAIN timespec ToMonotonic(const timespec& wall) {
  timespec wall_now{};
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &wall_now);
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  if (wall.tv_sec > wall_now.tv_sec + kForEver) {
    until.tv_sec += kForEver;
    return until;
  }
  until.tv_sec += wall.tv_sec - wall_now.tv_sec;
  until.tv_nsec += wall.tv_nsec - wall_now.tv_nsec;
  if (until.tv_nsec < 0) {
    until.tv_nsec += kNanosecondsPerSecond;
    --until.tv_sec;
  } else if (until.tv_nsec >= kNanosecondsPerSecond) {
    until.tv_nsec -= kNanosecondsPerSecond;
    ++until.tv_sec;
  }
  return until.tv_sec < 0 ? timespec{} : until;  // The kernel takes no time before its start.
}

HEDDLE_PLAIN long Call(long number, long a, long b, long c, long d, long e, long f) {
  timespec until{};
  if (number == SYS_futex && b == kAbseilsWait && d != 0 && IsTime(d)) {
    until = ToMonotonic(*reinterpret_cast<const timespec*>(d));
    b &= ~static_cast<long>(FUTEX_CLOCK_REALTIME);
    d = reinterpret_cast<long>(&until);
  }
  const long result = Kernel(number, a, b, c, d, e, f);
  if (result < 0 && result >= -kMaxErrors) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

}  // namespace
}  // namespace heddle::elastic

// NOLINTBEGIN(readability-identifier-naming): the name is the C library's.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's is reserved
extern "C" HEDDLE_PLAIN long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  const long a = va_arg(list, long);
  const long b = va_arg(list, long);
  const long c = va_arg(list, long);
  const long d = va_arg(list, long);
  const long e = va_arg(list, long);
  const long f = va_arg(list, long);
  va_end(list);
  return heddle::elastic::Call(number, a, b, c, d, e, f);
}
// NOLINTEND(readability-identifier-naming)

#endif
