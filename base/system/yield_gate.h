/// \file
/// Whether a wait may give its core away, or had better sleep at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace heddle {

/// Whoever gives its core away for long gives it to others than members, and gets it back only at
/// the end of their time slice; a sleeper gets it when it is woken. So a long yield closes the gate
/// for a while: waits sleep at once. What one long yield costs is known only afterwards, so the
/// gate is tried again; it stays closed for twice as long where the next long yield follows soon,
/// and for half as long where it does not. So a machine that others keep busy is tried ever more
/// rarely, and a single disturbance of an idle one is soon forgotten.
///
/// Thread-safe: two threads at once may make one change of the two.
class YieldGate {
 public:
  static constexpr Duration kShortest = std::chrono::milliseconds(5);
  static constexpr Duration kLongest = std::chrono::milliseconds(200);
  /// A yield that took this long.
  static constexpr Duration kLongYield = std::chrono::milliseconds(1);

  bool IsOpen(Time now) const { return now >= closed_until_.load(std::memory_order_relaxed); }

  /// A yield took from `before` to `now`.
  void Yielded(Time before, Time now) {
    if (now - before <= kLongYield) {
      return;
    }
    const Duration last = closed_for_.load(std::memory_order_relaxed);
    const bool soon = before - closed_until_.load(std::memory_order_relaxed) < last;
    const Duration next = std::clamp(soon ? 2 * last : last / 2, kShortest, kLongest);
    closed_for_.store(next, std::memory_order_relaxed);
    closed_until_.store(now + next, std::memory_order_relaxed);
  }

 private:
  std::atomic<Time> closed_until_ = Time();
  std::atomic<Duration> closed_for_ = Duration();
};

}  // namespace heddle
