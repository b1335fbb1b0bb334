/// \file
/// Seeds of randomised tests: printed, and replayed from HEDDLE_TEST_SEED.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace heddle::testing {

/// HEDDLE_TEST_SEED alone when it is set, else `count` seeds from a fresh random start, which is
/// printed.
inline std::vector<uint64_t> TestSeeds(int count) {
  if (const char* const text = std::getenv("HEDDLE_TEST_SEED"); text != nullptr) {
    return {std::strtoull(text, nullptr, 10)};
  }
  const uint64_t start = std::random_device{}();
  std::printf("seeds %llu .. %llu\n", static_cast<unsigned long long>(start),
              static_cast<unsigned long long>(start) + static_cast<unsigned>(count) - 1);
  std::vector<uint64_t> seeds;
  for (int i = 0; i < count; ++i) {
    seeds.push_back(start + static_cast<uint64_t>(i));
  }
  return seeds;
}

}  // namespace heddle::testing

/// Names the seed in every failure inside the scope.
#define HEDDLE_TRACE_SEED(seed) SCOPED_TRACE("replay with HEDDLE_TEST_SEED=" + std::to_string(seed))
