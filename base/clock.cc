#include "base/clock.h"

#include <ctime>

namespace heddle {

double WallClockSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

Duration CountedCpuTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// A kernel without a fine clock for its scheduler adds a whole tick now and then, whatever
// clock_getres says.
bool CountsByTicks() {
  constexpr int kReads = 100;
  const Duration begun = CountedCpuTime();
  int changes = 0;
  Duration last = begun;
  for (int i = 0; i < kReads; ++i) {
    const Duration now = CountedCpuTime();
    changes += now != last ? 1 : 0;
    last = now;
  }
  return changes < kReads / 10;
}

}  // namespace

Duration ThreadCpuTime() {
  static const bool kByTicks = CountsByTicks();
  return kByTicks ? Now().time_since_epoch() : CountedCpuTime();
}

}  // namespace heddle
