#include "tests/support/tier.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::testing {
namespace {

/// Sets a variable of the environment, or removes it with null, and puts back what was there.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    had_ = before != nullptr;
    before_ = had_ ? before : "";
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Setting() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  bool had_;
  std::string before_;
};

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
