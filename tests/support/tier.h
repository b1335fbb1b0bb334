/// \file
/// The sizes of random and exhaustive tests, by the tier that runs them
/// (docs/internals/testing.md).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace heddle::testing {

/// The tiers of tests, in ascending order of how much they do.
enum class Tier { kQuick, kCheck, kFull };

/// The tier that HEDDLE_TEST_TIER names; unset or empty: full. Any other word ends the program with
/// a message. To be called before a test starts threads that change the environment.
inline Tier TestTier() {
  const char* const text = std::getenv("HEDDLE_TEST_TIER");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view name = text == nullptr || *text == '\0' ? "full" : text;
  if (name != "quick" && name != "check" && name != "full") {
    std::fprintf(stderr, "HEDDLE_TEST_TIER=%s: expected quick, check or full\n", text);
    std::exit(2);  // NOLINT(concurrency-mt-unsafe)
  }
  return name == "quick" ? Tier::kQuick : name == "check" ? Tier::kCheck : Tier::kFull;
}

/// The size that belongs to the tier. The entry must be registered as SCALED
/// (scripts/cmake/HeddleTiers.cmake), which says that `full` has to run it again; otherwise the
/// program ends with a message.
template <typename T>
T Scaled(T quick, T check, T full) {
  const char* const scaled = std::getenv("HEDDLE_TEST_SCALED");  // NOLINT(concurrency-mt-unsafe)
  if (scaled != nullptr && std::string_view(scaled) == "0") {
    std::fputs("this test's sizes depend on the tier: register its entry as SCALED\n", stderr);
    std::exit(2);  // NOLINT(concurrency-mt-unsafe)
  }
  const Tier tier = TestTier();
  return tier == Tier::kQuick ? quick : tier == Tier::kCheck ? check : full;
}

}  // namespace heddle::testing
