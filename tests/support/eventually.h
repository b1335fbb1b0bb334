/// \file
/// Waits of tests for other threads and processes.
#pragma once

#include <chrono>
#include <concepts>
#include <thread>

#include "base/clock.h"

namespace heddle::testing {

/// The time after which a wait ends, for tests that hang; no test checks how long anything takes.
inline constexpr Duration kHang = std::chrono::minutes(2);

/// Evaluates a condition every millisecond until it holds; false: it did not within kHang.
template <std::predicate Condition>
bool Eventually(const Condition& condition) {
  const Time end = After(kHang);
  while (!condition()) {
    if (Now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace heddle::testing
