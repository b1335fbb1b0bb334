/// \file
/// Seeds of randomised tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::testing {

/// The seed of randomised tests: HEDDLE_TEST_SEED where it is set, else HEDDLE_TEST_DEFAULT_SEED,
/// which every ctest entry sets, else (in a program that is run by hand) a random one. Prints it
/// with the way to repeat it. Every call in one process returns the same seed. A value that is no
/// whole number ends the program with a message. To be called before a test starts threads that
/// change the environment.
uint64_t TestSeed();

/// The `count` consecutive seeds from TestSeed() on: a case that fails is repeated as the first one
/// of its own seed.
std::vector<uint64_t> TestSeeds(int count);

}  // namespace heddle::testing

/// Names the seed in every failure inside the scope.
#define HEDDLE_TRACE_SEED(seed) SCOPED_TRACE("repeat with HEDDLE_TEST_SEED=" + std::to_string(seed))
