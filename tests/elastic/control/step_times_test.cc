// How long steps take, and which of them count.
#include "elastic/control/steps/step_times.h"

#include <limits>

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

void Count(StepTimes& times, std::initializer_list<double> seconds, int64_t generation = 1) {
  for (const double each : seconds) {
    times.Count(generation, each);
  }
}

TEST(StepTimesTest, TheFirstStepsDoNotCountAndAFewSayNothing) {
  StepTimes times;
  Count(times, {9, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(times.Median(), std::nullopt) << "seven";
  Count(times, {0, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(times.Median(), std::nullopt) << "they were not measured";
  times.Count(1, 1);
  EXPECT_EQ(times.Median(), 1);
  EXPECT_EQ(times.counted(), 8);
}

TEST(StepTimesTest, StepsOfAnotherGenerationDoNotCount) {
  StepTimes times;
  const auto fill = [&](int64_t generation) {
    Count(times, {9, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1}, generation);
  };
  fill(1);
  ASSERT_TRUE(times.Median());
  times.BeginGeneration();
  EXPECT_EQ(times.Median(), std::nullopt);
  fill(1);  // They come late.
  Count(times, {9, 9, 9, 9, 9, 2, 2, 2, 2, 2, 2, 2}, 2);
  EXPECT_EQ(times.Median(), std::nullopt) << "seven of the second";
  times.Count(2, 2);
  EXPECT_EQ(times.Median(), 2);
}

TEST(StepTimesTest, StepsWithASaveChangeNothing) {
  StepTimes times;
  Count(times, {1, 1, 1, 1, 1, 1, 1, 7, 1, 1, 7, 1, 1, 1});
  EXPECT_EQ(times.Median(), 1);
}

TEST(StepTimesTest, TheNewestCount) {
  StepTimes times;
  for (int i = 0; i < 100; ++i) {
    times.Count(1, i < 92 ? 1 : 3);
  }
  EXPECT_EQ(times.Median(), 3) << "eight of fifteen";
}

}  // namespace
}  // namespace heddle::elastic
