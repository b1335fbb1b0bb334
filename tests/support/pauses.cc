#include "tests/support/pauses.h"

#include <algorithm>
#include <chrono>

#include <pthread.h>
#include <sched.h>

namespace heddle::testing {
namespace {

constexpr Duration kMoment = std::chrono::milliseconds(2);
/// An interrupt or the kernel's own work may take as long; summed up it is no pause.
constexpr Duration kShortest = std::chrono::milliseconds(3);

bool BecomeUrgentOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_param urgency{};
  urgency.sched_priority = sched_get_priority_max(SCHED_FIFO) - 1;
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0 &&
         pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgency) == 0;
}

}  // namespace

Pauses::Pauses() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return;
  }
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &set)) {
      threads_.emplace_back([this, processor] { Watch(processor); });
    }
  }
}

Pauses::~Pauses() {
  stop_ = true;
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Pauses::Watch(int processor) {
  if (!BecomeUrgentOn(processor)) {
    return;
  }
  while (!stop_) {
    const Time before = Now();
    std::this_thread::sleep_for(kMoment);
    const Time after = Now();
    if (after - before > kMoment + kShortest) {
      const std::lock_guard lock(mutex_);
      pauses_[processor].emplace_back(before, after);
    }
  }
}

Duration Pauses::Within(Time begin, Time end) const {
  const std::lock_guard lock(mutex_);
  Duration longest{};
  for (const auto& [processor, pauses] : pauses_) {
    Duration total{};
    for (const auto& [start, stop] : pauses) {
      total += std::max(Duration(), std::min(stop, end) - std::max(start, begin));
    }
    longest = std::max(longest, total);
  }
  return longest;
}

}  // namespace heddle::testing
