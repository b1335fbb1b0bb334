/// \file
/// Every epoch is a permutation, whatever the number of windows; epochs and seeds differ; the order
/// is well mixed and stays what it was when this test was written.
#include "engine/data/sample_order.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::data {
namespace {

std::vector<int64_t> Epoch(const SampleOrder& order, int64_t windows, int64_t epoch) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < windows; ++i) {
    out.push_back(order.Window(epoch * windows + i));
  }
  return out;
}

TEST(SampleOrderTest, EveryEpochVisitsEachWindowOnce) {
  for (const int64_t windows :
       {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4097}) {
    const SampleOrder order(11, windows);
    for (const int64_t epoch : {0, 1, 1000000}) {
      std::vector<int> visits(static_cast<size_t>(windows), 0);
      for (const int64_t window : Epoch(order, windows, epoch)) {
        ASSERT_TRUE(window >= 0 && window < windows);
        ++visits[static_cast<size_t>(window)];
      }
      EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(windows), 1))
          << windows << " epoch " << epoch;
    }
  }
}

TEST(SampleOrderTest, EpochsAndSeedsGiveOtherOrders) {
  const SampleOrder order(1, 100);
  EXPECT_NE(Epoch(order, 100, 0), Epoch(order, 100, 1));
  EXPECT_NE(Epoch(order, 100, 0), Epoch(SampleOrder(2, 100), 100, 0));
  EXPECT_EQ(Epoch(order, 100, 3), Epoch(SampleOrder(1, 100), 100, 3));
}

TEST(SampleOrderTest, EachPlaceSeesEveryWindowEquallyOften) {
  // Chi-squared over (place, window) of many epochs; 5 windows have 16 degrees of freedom.
  constexpr int64_t kWindows = 5;
  constexpr int64_t kEpochs = 20000;
  const SampleOrder order(3, kWindows);
  std::vector<double> counts(kWindows * kWindows, 0);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t place = 0; place < kWindows; ++place) {
      counts[static_cast<size_t>(place * kWindows + order.Window(epoch * kWindows + place))] += 1;
    }
  }
  double chi_squared = 0;
  const double expected = static_cast<double>(kEpochs) / kWindows;
  for (const double count : counts) {
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 50);  // 99.998 % quantile; the order is fixed, so this does not flicker
}

TEST(SampleOrderTest, NeighboursAreTornApart) {
  constexpr int64_t kWindows = 10000;
  const std::vector<int64_t> epoch = Epoch(SampleOrder(5, kWindows), kWindows, 0);
  double distance = 0;
  for (size_t i = 1; i < epoch.size(); ++i) {
    distance += static_cast<double>(std::abs(epoch[i] - epoch[i - 1]));
  }
  EXPECT_NEAR(distance / kWindows, kWindows / 3.0, kWindows / 30.0);  // mean of |x - y|, uniform
}

TEST(SampleOrderTest, VeryLargeDataAreFine) {
  const int64_t windows = (int64_t{1} << 40) + 12345;
  const SampleOrder order(9, windows);
  for (const int64_t sample : {int64_t{0}, windows - 1, windows, 3 * windows + 7}) {
    const int64_t window = order.Window(sample);
    EXPECT_TRUE(window >= 0 && window < windows);
  }
}

TEST(SampleOrderTest, TheOrderIsPartOfTheFormat) {
  // A run that is resumed by a later version must go on with the same samples.
  EXPECT_THAT(Epoch(SampleOrder(42, 10), 10, 0),
              testing::ElementsAre(9, 4, 5, 7, 0, 8, 2, 6, 3, 1));
}

}  // namespace
}  // namespace heddle::data
