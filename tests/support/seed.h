/// \file
/// Seeds of randomised tests.
#pragma once

#include <cstdint>

namespace heddle::testing {

/// HEDDLE_TEST_SEED when it is set, otherwise a new one at every call of the program; printed with
/// the way to repeat it. Every call in one process gives the same seed.
uint64_t TestSeed();

}  // namespace heddle::testing
