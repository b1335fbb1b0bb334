#include "tests/support/seed.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/setting.h"

namespace heddle::testing {
namespace {

// A process has one seed: each test asks in a process of its own.
void ExpectSeed(const char* given, const char* otherwise, uint64_t seed) {
  const Setting test("HEDDLE_TEST_SEED", given);
  const Setting entry("HEDDLE_TEST_DEFAULT_SEED", otherwise);
  EXPECT_EXIT(std::exit(TestSeed() == seed ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(SeedDeathTest, TheSeedIsTheGivenOneElseTheEntrys) {
  ExpectSeed("7", "8", 7);
  ExpectSeed("0", "8", 0);
  ExpectSeed("18446744073709551615", nullptr, 18446744073709551615U);
  ExpectSeed(nullptr, "8", 8);
  ExpectSeed("", "8", 8);
}

TEST(SeedDeathTest, AProgramThatIsRunByHandHasASeedOfItsOwn) {
  const Setting test("HEDDLE_TEST_SEED", nullptr);
  const Setting entry("HEDDLE_TEST_DEFAULT_SEED", nullptr);
  EXPECT_EXIT(std::exit(TestSeed() == TestSeed() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(SeedDeathTest, SeveralSeedsFollowEachOther) {
  const Setting test("HEDDLE_TEST_SEED", "41");
  EXPECT_EXIT(std::exit(TestSeeds(3) == std::vector<uint64_t>{41, 42, 43} ? 0 : 1),
              ::testing::ExitedWithCode(0), "");
}

TEST(SeedDeathTest, WhatIsNoWholeNumberEndsTheProgram) {
  for (const char* const text : {"abc", "-1", "1.5", "7x", " 7", "18446744073709551616"}) {
    const std::string line = ": expected a whole number below 2.64\n$";
    {
      const Setting test("HEDDLE_TEST_SEED", text);
      EXPECT_EXIT(TestSeed(), ::testing::ExitedWithCode(2),
                  std::string("^HEDDLE_TEST_SEED=") + text + line);
    }
    const Setting test("HEDDLE_TEST_SEED", nullptr);
    const Setting entry("HEDDLE_TEST_DEFAULT_SEED", text);
    EXPECT_EXIT(TestSeed(), ::testing::ExitedWithCode(2),
                std::string("^HEDDLE_TEST_DEFAULT_SEED=") + text + line);
  }
}

}  // namespace
}  // namespace heddle::testing
