// The clock of the programs in a User-Mode Linux guest of scripts/rdma-vm, loaded into each by
// LD_PRELOAD. That kernel has no vDSO: to read the clock is a system call, which there takes some
// 80 us, as long as everything else that a small message needs. Here clock_gettime counts the
// processor's ticks instead from a time that it asked for once.
//
// Without HEDDLE_TICKS_PER_SECOND it leaves everything as it is; `guest_clock` run as a program
// prints that number.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>

#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

namespace {

constexpr int64_t kNano = 1'000'000'000;

// The kernel's word.
int64_t Ask(clockid_t clock) {
  timespec time = {};
  syscall(SYS_clock_gettime, clock, &time);
  return time.tv_sec * kNano + time.tv_nsec;
}

/// A clock's reading and the ticks at that moment.
struct Reading {
  int64_t time = 0;
  uint64_t ticks = 0;
};

// Of some attempts the one that took the shortest: the moment is known best then.
Reading Read(clockid_t clock) {
  Reading best;
  uint64_t shortest = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = __rdtsc();
    const int64_t time = Ask(clock);
    const uint64_t took = __rdtsc() - before;
    if (took < shortest) {
      shortest = took;
      best = {.time = time, .ticks = before + took / 2};
    }
  }
  return best;
}

class Clocks {
 public:
  Clocks() {
    const char* rate = std::getenv("HEDDLE_TICKS_PER_SECOND");
    rate_ = rate == nullptr ? 0 : std::strtod(rate, nullptr);
    if (rate_ > 0) {
      monotonic_ = Read(CLOCK_MONOTONIC);
      real_ = Read(CLOCK_REALTIME);
    }
  }
  int64_t Now(clockid_t clock) const {
    if (rate_ <= 0 || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)) {
      return -1;
    }
    const Reading& from = clock == CLOCK_MONOTONIC ? monotonic_ : real_;
    const auto ticks = static_cast<double>(static_cast<int64_t>(__rdtsc() - from.ticks));
    return from.time + static_cast<int64_t>(ticks / rate_ * kNano);
  }

 private:
  double rate_ = 0;
  Reading monotonic_;
  Reading real_;
};

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const Clocks clocks;
  const int64_t now = clocks.Now(clock);
  if (now < 0) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  }
  time->tv_sec = now / kNano;
  time->tv_nsec = now % kNano;
  return 0;
}

int main() {
  const Reading begin = Read(CLOCK_MONOTONIC);
  usleep(100'000);
  const Reading end = Read(CLOCK_MONOTONIC);
  std::printf("%.0f\n", static_cast<double>(end.ticks - begin.ticks) * kNano /
                            static_cast<double>(end.time - begin.time));
}
