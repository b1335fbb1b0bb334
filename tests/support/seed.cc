#include "tests/support/seed.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace heddle::testing {
namespace {

/// Nothing where the variable is not set or empty.
std::optional<uint64_t> SeedFrom(const char* variable) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  const std::string_view digits = text;
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), seed);
  if (error != std::errc() || end != digits.end()) {
    fmt::print(stderr, "{}={}: expected a whole number below 2^64\n", variable, digits);
    std::exit(2);  // NOLINT(concurrency-mt-unsafe)
  }
  return seed;
}

uint64_t ReadSeed() {
  const std::optional<uint64_t> given = SeedFrom("HEDDLE_TEST_SEED");
  const std::optional<uint64_t> seed = given ? given : SeedFrom("HEDDLE_TEST_DEFAULT_SEED");
  return seed ? *seed : std::random_device{}();
}

}  // namespace

uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const uint64_t value = ReadSeed();
    fmt::print("seed {}: repeat with HEDDLE_TEST_SEED={}\n", value, value);
    std::fflush(stdout);  // A process that is forked later would print it again.
    return value;
  }();
  return seed;
}

std::vector<uint64_t> TestSeeds(int count) {
  std::vector<uint64_t> seeds;
  for (int i = 0; i < count; ++i) {
    seeds.push_back(TestSeed() + static_cast<uint64_t>(i));
  }
  return seeds;
}

}  // namespace heddle::testing
