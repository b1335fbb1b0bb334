/// \file
/// How tests wait for what other threads and processes do.
#pragma once

#include <chrono>
#include <concepts>
#include <thread>

#include "base/clock.h"

namespace heddle::testing {

/// Ends the wait of a test that hangs; no test says anything about how long something takes.
inline constexpr Duration kHang = std::chrono::minutes(2);

/// Looks again and again until it holds; false if the test hangs.
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
