// Whatever the order in which threads come, a slot has one task at a time and all are written.
#include "checkpoint/save/encode_window.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle::checkpoint {
namespace {

constexpr int64_t kSlots = EncodeWindow::kSlots;

TEST(EncodeWindowTest, TasksAreTakenInOrderAsFarAsTheWindowReaches) {
  EncodeWindow window;
  EXPECT_FALSE(window.CanTake()) << "there is no save";
  window.Begin(kSlots + 2);
  for (int64_t task = 0; task < kSlots; ++task) {
    ASSERT_TRUE(window.CanTake());
    EXPECT_EQ(window.Take(), task);
  }
  EXPECT_FALSE(window.CanTake()) << "nothing is written";
  window.Encoded(1);
  EXPECT_TRUE(window.IsReady(1));
  EXPECT_FALSE(window.IsReady(0));
  EXPECT_FALSE(window.CanTake());
  window.Encoded(0);
  window.Written(0);
  EXPECT_FALSE(window.IsReady(0));
  ASSERT_TRUE(window.CanTake());
  EXPECT_EQ(window.Take(), kSlots);
  EXPECT_EQ(EncodeWindow::SlotOf(kSlots), EncodeWindow::SlotOf(0));
  EXPECT_FALSE(window.CanTake());
}

TEST(EncodeWindowTest, ASaveThatWasCutLeavesNothingToTheNext) {
  EncodeWindow window;
  window.Begin(8);
  window.Take();
  EXPECT_FALSE(window.IsIdle());
  window.Encoded(0);
  EXPECT_TRUE(window.IsIdle());
  EXPECT_FALSE(window.AllEncoded());
  window.Begin(1);
  EXPECT_FALSE(window.IsReady(0));
  EXPECT_EQ(window.Take(), 0);
  EXPECT_FALSE(window.CanTake());
  window.Encoded(0);
  EXPECT_TRUE(window.AllEncoded());
  window.Begin(0);
  EXPECT_TRUE(window.AllEncoded());
  EXPECT_FALSE(window.CanTake());
}

TEST(EncodeWindowTest, AnyOrderOfThreadsWritesEachTaskOnceAndSharesNoSlot) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 200; ++round) {
    const auto tasks = static_cast<int64_t>(random.Below(100));
    EncodeWindow window;
    window.Begin(tasks);
    std::map<size_t, int64_t> slots;  // What each slot has, as its users see it.
    std::vector<int64_t> taken;
    int64_t encoded = 0;
    int64_t written = 0;
    while (written < tasks) {
      const auto choice = random.Below(3);
      if (choice == 0 && window.CanTake()) {
        const int64_t task = window.Take();
        ASSERT_TRUE(slots.emplace(EncodeWindow::SlotOf(task), task).second) << "task " << task;
        taken.push_back(task);
      } else if (choice == 1 && !taken.empty()) {
        const auto which = taken.begin() + static_cast<int64_t>(random.Below(taken.size()));
        window.Encoded(*which);
        ++encoded;
        taken.erase(which);
      } else if (choice == 2 && window.IsReady(written)) {
        ASSERT_EQ(std::ranges::count(taken, written), 0);
        ASSERT_EQ(slots.at(EncodeWindow::SlotOf(written)), written);
        slots.erase(EncodeWindow::SlotOf(written));
        window.Written(written++);
      }
      ASSERT_EQ(window.IsIdle(), taken.empty());
      ASSERT_EQ(window.AllEncoded(), encoded == tasks);
      // Somebody can always go on.
      ASSERT_TRUE(written == tasks || window.CanTake() || !taken.empty() ||
                  window.IsReady(written));
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
