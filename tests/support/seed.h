/// \file
/// Seeds of randomised tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::testing {

/// HEDDLE_TEST_SEED where it is set, else HEDDLE_TEST_DEFAULT_SEED, which every ctest entry has,
/// else (a program that is run by hand) a random one; printed with the way to repeat it. Every call
/// in one process gives the same seed. What is no whole number ends the program with one line. To
/// be called before a test starts threads that change the environment.
uint64_t TestSeed();

/// So many seeds from TestSeed() on: a case that fails is the first of its own seed.
std::vector<uint64_t> TestSeeds(int count);

}  // namespace heddle::testing

/// Names the seed in every failure inside the scope.
#define HEDDLE_TRACE_SEED(seed) SCOPED_TRACE("repeat with HEDDLE_TEST_SEED=" + std::to_string(seed))
