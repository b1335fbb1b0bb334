// A process that is to end and does not.
#include "base/system/end_watch.h"

#include <atomic>

#include <gtest/gtest.h>

namespace heddle {
namespace {

constexpr Duration kSoon = std::chrono::milliseconds(100);
constexpr Duration kLong = std::chrono::seconds(60);

// Waits for what never comes.
void Hang() {
  Mutex mutex;
  CondVar changed;
  const MutexLock lock(mutex);
  changed.WaitUntil(mutex, After(kLong));
}

class EndWatchDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EndWatchDeathTest, ASignalBoundsTheEnd) {
  EXPECT_EXIT(
      {
        std::atomic<bool> asked = true;
        const EndWatch watch([&asked] { return asked.load(); }, kSoon);
        Hang();
      },
      ::testing::ExitedWithCode(1), "asked to end, and something does not");
}

TEST_F(EndWatchDeathTest, TheEarliestOfTheEndsThatAreAskedForCountsWithItsCode) {
  EXPECT_EXIT(
      {
        EndWatch watch([] { return false; }, kSoon);
        watch.EndWithin(kLong, 3);
        watch.EndWithin(kSoon, 75);
        watch.EndWithin(kLong, 4);
        Hang();
      },
      ::testing::ExitedWithCode(75), "asked to end, and something does not");
}

TEST_F(EndWatchDeathTest, WhoEndsInTimeDoesSoItself) {
  EXPECT_EXIT(
      {
        {
          EndWatch watch([] { return true; }, kLong);
          watch.EndWithin(kLong, 75);
        }
        std::_Exit(5);
      },
      ::testing::ExitedWithCode(5), "^$");
}

TEST_F(EndWatchDeathTest, NobodyAskedForAnEnd) {
  EXPECT_EXIT(
      {
        const EndWatch watch([] { return false; }, Duration(0));
        Mutex mutex;
        CondVar changed;
        {
          const MutexLock lock(mutex);
          changed.WaitUntil(mutex, After(3 * kSoon));
        }
        std::_Exit(5);
      },
      ::testing::ExitedWithCode(5), "^$");
}

}  // namespace
}  // namespace heddle
