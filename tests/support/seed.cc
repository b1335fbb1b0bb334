#include "tests/support/seed.h"

#include <cstdlib>
#include <random>

#include <fmt/format.h>

namespace heddle::testing {

uint64_t TestSeed() {
  static const uint64_t seed = [] {
    // Read once, before any test starts a thread that could change the environment.
    const char* const given = std::getenv("HEDDLE_TEST_SEED");  // NOLINT(concurrency-mt-unsafe)
    const uint64_t value =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    fmt::print("seed {}: repeat with HEDDLE_TEST_SEED={}\n", value, value);
    return value;
  }();
  return seed;
}

}  // namespace heddle::testing
