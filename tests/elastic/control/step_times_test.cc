// How long steps take, which of them count, and how certain that is.
#include "elastic/control/steps/step_times.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"

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
  EXPECT_FALSE(times.Newest()) << "seven";
  Count(times, {0, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_FALSE(times.Newest()) << "they were not measured";
  times.Count(1, 1);
  ASSERT_TRUE(times.Newest());
  EXPECT_EQ(times.Newest()->seconds, 1);
  EXPECT_EQ(times.Newest()->steps, 8);
}

TEST(StepTimesTest, StepsOfAnotherGenerationDoNotCount) {
  StepTimes times;
  const auto fill = [&](int64_t generation) {
    Count(times, {9, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1}, generation);
  };
  fill(1);
  ASSERT_TRUE(times.Newest());
  times.BeginGeneration();
  EXPECT_FALSE(times.Newest());
  fill(1);  // They come late.
  Count(times, {9, 9, 9, 9, 9, 2, 2, 2, 2, 2, 2, 2}, 2);
  EXPECT_FALSE(times.Newest()) << "seven of the second";
  times.Count(2, 2);
  ASSERT_TRUE(times.Newest());
  EXPECT_EQ(times.Newest()->seconds, 2);
}

TEST(StepTimesTest, StepsWithASaveChangeNothing) {
  StepTimes times;
  Count(times, {1, 1, 1, 1, 1, 1, 1, 7, 1, 1, 7, 1, 1, 1});
  EXPECT_EQ(times.Newest()->seconds, 1);
  EXPECT_EQ(times.Newest()->noise, 0);
}

TEST(StepTimesTest, TheNewestCount) {
  StepTimes times;
  for (int i = 0; i < 200; ++i) {
    times.Count(1, i < 192 ? 1 : 3);
  }
  EXPECT_EQ(times.Newest()->seconds, 3) << "eight of fifteen";
  EXPECT_EQ(times.Newest(StepTimes::kMax)->seconds, 1);
  EXPECT_EQ(times.Newest(1000)->steps, StepTimes::kKept);
}

// The truth is known: two standard errors hold it in about 95 of 100 cases.
TEST(StepTimesTest, ItsUncertaintyHoldsTheTruth) {
  Random random(3);
  int inside = 0;
  for (int run = 0; run < 1000; ++run) {
    StepTimes times;
    for (int i = 0; i < StepTimes::kExcluded + 30; ++i) {
      double normal = -6;
      for (int k = 0; k < 12; ++k) {
        normal += random.Uniform();
      }
      times.Count(1, 2 * (1 + 0.1 * normal));
    }
    const StepLevel level = *times.Newest(30);
    inside += std::abs(level.seconds / 2 - 1) <= level.Uncertainty() ? 1 : 0;
  }
  EXPECT_GT(inside, 900);
  EXPECT_LT(inside, 990);
}

}  // namespace
}  // namespace heddle::elastic
