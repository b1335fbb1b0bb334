#include "tests/support/tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/setting.h"

namespace heddle::testing {
namespace {

int SizeIn(const char* tier) {
  const Setting scaled("HEDDLE_TEST_SCALED", "1");
  const Setting setting("HEDDLE_TEST_TIER", tier);
  return Scaled(1, 2, 3);
}

TEST(TierTest, TheTierChoosesTheSize) {
  EXPECT_EQ(SizeIn("quick"), 1);
  EXPECT_EQ(SizeIn("check"), 2);
  EXPECT_EQ(SizeIn("full"), 3);
  EXPECT_EQ(SizeIn(""), 3);
  EXPECT_EQ(SizeIn(nullptr), 3);
}

TEST(TierDeathTest, AnUnknownTierEndsTheProgram) {
  EXPECT_EXIT(SizeIn("fast"), ::testing::ExitedWithCode(2), "HEDDLE_TEST_TIER=fast");
}

TEST(TierDeathTest, AnEntryThatIsNotScaledMayNotAskForASize) {
  const Setting scaled("HEDDLE_TEST_SCALED", "0");
  EXPECT_EXIT(Scaled(1, 2, 3), ::testing::ExitedWithCode(2), "register its entry as SCALED");
}

}  // namespace
}  // namespace heddle::testing
