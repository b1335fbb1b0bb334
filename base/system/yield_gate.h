/// \file
/// Decides whether a wait may yield its core or should sleep at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace heddle {

/// A yield that takes long has given the core to a process other than a member, and got it back
/// only at the end of that process' time slice; a sleeping thread gets a core when it is woken. So
/// a long yield closes the gate for a while, in which waits sleep at once. The cost of a yield is
/// known only afterwards, so the gate opens again. It closes for twice as long if the next long
/// yield follows soon, and for half as long if not. So a machine that other processes keep busy is
/// tried ever more rarely, and a single disturbance of an idle machine is soon forgotten.
///
/// Thread: any; of two concurrent changes one may be lost.
class YieldGate {
 public:
  static constexpr Duration kShortest = std::chrono::milliseconds(5);
  static constexpr Duration kLongest = std::chrono::milliseconds(200);
  /// The longest yield that is not a long one.
  static constexpr Duration kLongYield = std::chrono::milliseconds(1);

  bool IsOpen(Time now) const { return now >= closed_until_.load(std::memory_order_relaxed); }

  /// Records a yield that took from `before` to `now`.
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
