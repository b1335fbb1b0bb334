// A change of speed counts when it lasts, and is not acted on again and again.
#include "elastic/control/drift/drift.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace heddle::elastic {
namespace {

class DriftTest : public testing::Test {
 protected:
  DriftTest() {
    DurableGeneration held{.number = 1, .plan = {}, .members = {}};
    held.members = {{"a", "A"}, {"b", "B"}};
    generations_.Begin(held);
  }
  void Window(const std::string& worker, double ratio) {
    wire::Heartbeat message;
    message.set_generation(message_generation_.value_or(generations_.held()->number));
    message.set_window(++window_);
    message.set_busy_seconds(ratio);
    message.set_predicted_busy_seconds(1);
    drift_.Count(worker, message, generations_, policy_);
    drift_.Count(worker, message, generations_, policy_);  // It is said until the next is complete.
  }
  void QuickWindows(const std::string& worker, std::initializer_list<double> ratios) {
    for (const double ratio : ratios) {
      wire::Heartbeat message;
      message.set_generation(generations_.held()->number);
      message.set_quick_window(++quick_window_);
      message.set_quick_busy_seconds(ratio);
      message.set_quick_predicted_busy_seconds(1);
      drift_.Count(worker, message, generations_, policy_);
      drift_.Count(worker, message, generations_, policy_);
    }
  }
  void Windows(const std::string& worker, std::initializer_list<double> ratios) {
    for (const double ratio : ratios) {
      Window(worker, ratio);
    }
  }
  void BeginGeneration(int64_t number) {
    DurableGeneration next = *generations_.held();
    next.number = number;
    generations_.Begin(next);
    drift_.BeginGeneration();
    window_ = 0;
    quick_window_ = 0;
  }
  bool Notice() { return drift_.Notice(generations_, policy_, now_, out_); }

  DriftPolicy policy_;  // Four of five windows beyond 1.44, the first one left out.
  Time now_{std::chrono::seconds(100)};
  int64_t window_ = 0;
  int64_t quick_window_ = 0;
  std::optional<int64_t> message_generation_;  ///< None: that in force.
  Generations generations_{1};
  Drift drift_;
  Outbox out_{[] { return DurableState(); }};
};

TEST_F(DriftTest, FourOfFiveWindowsBeyondTheThresholdAreDrift) {
  Windows("a", {9, 3, 3, 1});
  EXPECT_FALSE(Notice());
  Window("a", 3);
  EXPECT_FALSE(Notice()) << "three of four: the first window does not count";
  Window("a", 2);
  EXPECT_TRUE(Notice());
  EXPECT_EQ(drift_.SlowdownOf("a"), 2) << "the lowest of the newest three beyond it: 3, 3, 2";
  EXPECT_EQ(drift_.SlowdownOf("b"), 1);
}

// Some windows are longer, for the machine has other work, too; the change comes anywhere in one.
TEST_F(DriftTest, AFallToAFifthIsTakenForNoMore) {
  Random random(17);
  int overshot = 0;
  for (int run = 0; run < 1000; ++run) {
    drift_ = Drift();
    window_ = 0;
    const auto noisy = [&](double ratio) {
      return ratio * (1 + 0.1 * random.Uniform()) * (random.Below(5) == 0 ? 1.6 : 1);
    };
    Windows("a", {9, 1, 1, 1});
    for (uint64_t quiet = random.Below(3); quiet > 0; --quiet) {
      Window("a", 1.1);
    }
    Window("a", 1 + 4 * random.Uniform());
    while (!Notice()) {
      Window("a", noisy(5));
    }
    const double slowdown = drift_.SlowdownOf("a");
    EXPECT_GE(slowdown, 5) << run;
    overshot += slowdown > 1.15 * 5 ? 1 : 0;
  }
  EXPECT_LE(overshot, 20) << "all three of its windows were among the longer fifth";
}

TEST_F(DriftTest, AGreatChangeShowsInQuickWindows) {
  const double great = 1.001 * std::pow(policy_.threshold, 4);
  for (const double ratio : {great, 1 / great}) {
    drift_ = Drift();
    quick_window_ = 0;
    QuickWindows("a", {9, 1, ratio, ratio});
    EXPECT_FALSE(Notice()) << "two";
    QuickWindows("a", {ratio});
    EXPECT_EQ(Notice(), ratio < 1) << "three";
    if (ratio > 1) {
      QuickWindows("a", {ratio});
      EXPECT_FALSE(Notice()) << "four";
      QuickWindows("a", {ratio});
      EXPECT_TRUE(Notice()) << "all five";
    }
    EXPECT_TRUE(drift_.great());
    EXPECT_EQ(drift_.SlowdownOf("a"), ratio);
    BeginGeneration(generations_.held()->number + 1);
    QuickWindows("a", {9, ratio, ratio, ratio, ratio, ratio});
    EXPECT_FALSE(Notice()) << "the plan counts on it";
  }
}

TEST_F(DriftTest, OtherChangesDoNotCountInQuickWindows) {
  const double small = 0.999 * std::pow(policy_.threshold, 4);
  QuickWindows("a", {9, small, small, small, small, small, small});
  EXPECT_FALSE(Notice());
  QuickWindows("a", {5, 5, small, 5, small, 5, 5, small, small});
  EXPECT_FALSE(Notice());
  Windows("a", {9, small, small, small, small});
  EXPECT_TRUE(Notice()) << "they do in the others";
}

TEST_F(DriftTest, AGreatChangeIsTheSecondLowestWithoutTheOldest) {
  QuickWindows("a", {9, 3, 5.2, 4.4, 5, 4.8});
  ASSERT_TRUE(Notice());
  EXPECT_EQ(drift_.SlowdownOf("a"), 4.8);
}

// A mean of both speeds is too high where the worker became quicker.
TEST_F(DriftTest, AGreatReturnIsTheSecondLowestOfAll) {
  QuickWindows("a", {9, 0.2, 0.3, 0.25});
  ASSERT_TRUE(Notice());
  EXPECT_EQ(drift_.SlowdownOf("a"), 0.25);
}

TEST_F(DriftTest, ARoughEstimateIsRefinedByWindowsThatLast) {
  QuickWindows("a", {9, 5, 5, 5, 5, 5});
  ASSERT_TRUE(Notice());
  BeginGeneration(generations_.held()->number + 1);
  Windows("a", {9, 5, 5.6, 5.6, 5.6, 5, 5, 5.6, 5.6});
  EXPECT_FALSE(Notice()) << "eight";
  Window("a", 5.6);
  ASSERT_TRUE(Notice()) << "six of nine";
  EXPECT_EQ(drift_.SlowdownOf("a"), 5.6);
  BeginGeneration(generations_.held()->number + 1);
  Windows("a", {9, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5});
  EXPECT_FALSE(Notice()) << "it is rough no more, and within the threshold";
}

TEST_F(DriftTest, ARoughEstimateIsRefinedAtOnceOrNever) {
  QuickWindows("a", {9, 5, 5, 5, 5, 5});
  ASSERT_TRUE(Notice());
  BeginGeneration(generations_.held()->number + 1);
  Windows("a", {9, 5, 5, 5, 5, 5, 5.6, 5.6, 5.6, 5.6});
  EXPECT_FALSE(Notice()) << "four of nine";
  Windows("a", {5.6, 5.6, 5.6, 5.6, 5.6, 5.6});
  EXPECT_FALSE(Notice());
}

TEST_F(DriftTest, QuickWindowsDoNotRefineAnEstimate) {
  QuickWindows("a", {9, 5, 5, 5, 5, 5});
  ASSERT_TRUE(Notice());
  QuickWindows("a", {5.5, 5.5, 5.5, 5.5, 5.5});
  EXPECT_FALSE(Notice()) << "though the plan counts on 1";
  Windows("a", {9, 5.5, 5.5, 5.5, 5.5});
  EXPECT_TRUE(Notice());
  EXPECT_FALSE(drift_.great());
  EXPECT_EQ(drift_.SlowdownOf("a"), 5.5);
}

TEST_F(DriftTest, WindowsOfEitherLengthAreForgottenOnceNoticed) {
  Windows("a", {9, 5, 5, 5});
  QuickWindows("a", {9, 5, 5, 5, 5, 5});
  ASSERT_TRUE(Notice());
  Window("a", 5);
  EXPECT_FALSE(Notice());
}

TEST_F(DriftTest, WhatIsMeasuredIsKnownBeforeItIsNoticed) {
  EXPECT_EQ(drift_.MeasuredOf("a"), std::nullopt);
  Windows("a", {9, 1, 5, 5.5});
  EXPECT_EQ(drift_.MeasuredOf("a"), 1);
  Window("a", 6);
  EXPECT_EQ(drift_.MeasuredOf("a"), 5) << "of the newest three";
  QuickWindows("a", {9, 5, 4, 5});
  EXPECT_EQ(drift_.MeasuredOf("a"), 4) << "quick ones are newer";
  EXPECT_EQ(drift_.SlowdownOf("a"), 1);
  Window("a", 5);
  ASSERT_TRUE(Notice());
  EXPECT_EQ(drift_.SlowdownOf("a"), 5);
  EXPECT_EQ(drift_.MeasuredOf("a"), std::nullopt)
      << "there is none yet that the plan does not know of";
}

TEST_F(DriftTest, WhatWasMeasuredOutlivesAChangeOfPlan) {
  Windows("a", {9, 1, 5, 5});
  BeginGeneration(2);
  EXPECT_EQ(drift_.MeasuredOf("a"), 1);
  Windows("a", {9, 5});
  EXPECT_FALSE(Notice()) << "the first window of a generation does not count";
  Window("a", 5);
  EXPECT_TRUE(Notice()) << "two of this generation, and two of the one before";
  EXPECT_EQ(drift_.SlowdownOf("a"), 5);
  BeginGeneration(3);
  Windows("a", {9, 5, 5, 5, 5});
  EXPECT_FALSE(Notice()) << "the plan counts on it";
}

TEST_F(DriftTest, OldWindowsFallOut) {
  Windows("a", {1, 3, 3, 3, 1, 1, 3});
  EXPECT_FALSE(Notice()) << "3, 3, 1, 1, 3 are the last five";
}

TEST_F(DriftTest, ToBothSidesIsNoDrift) {
  Windows("a", {1, 3, 0.3, 3, 0.3, 3});
  EXPECT_FALSE(Notice());
}

TEST_F(DriftTest, AWorkerThatBecameQuickerDrifts) {
  Windows("a", {1, 0.6, 0.6, 0.6, 0.6});
  EXPECT_TRUE(Notice());
  EXPECT_EQ(drift_.SlowdownOf("a"), 0.6);
}

// Beyond 1.2, and not beyond its square.
TEST_F(DriftTest, ASmallChangeHasToLast) {
  for (const double small : {1.3, 1 / 1.3}) {
    drift_ = Drift();
    window_ = 0;
    Windows("a", {9, 1, small, small, small, small, small, small, small, small});
    EXPECT_FALSE(Notice()) << "eight";
    Window("a", small);
    EXPECT_TRUE(Notice());
    EXPECT_EQ(drift_.SlowdownOf("a"), small);
  }
}

TEST_F(DriftTest, ASmallChangeThatComesAndGoesIsNoDrift) {
  Window("a", 9);
  for (int turn = 0; turn < 10; ++turn) {
    Windows("a", {1.35, 1.35, 1.35, 1.35, 1.35, 1.35, 1.35, 1.35, 1.05});
    EXPECT_FALSE(Notice()) << turn;
  }
  Windows("a", {1.35, 1.35, 1.35, 1.35, 1.15, 1.35, 1.35, 1.35, 1.35, 1.35});
  EXPECT_TRUE(Notice()) << "one of them is less, and not as profiled";
}

TEST_F(DriftTest, WithinTheThresholdIsNoDrift) {
  Windows("a", {1, 1.2, 1.2, 1.2, 1.2, 1.2});
  EXPECT_FALSE(Notice());
}

TEST_F(DriftTest, WhatThePlanCountsOnIsNoDrift) {
  Windows("a", {1, 3, 3, 3, 3});
  ASSERT_TRUE(Notice());
  drift_.BeginGeneration();
  window_ = 0;
  Windows("a", {1, 3, 3, 3, 3});
  EXPECT_FALSE(Notice());
  Windows("a", {1, 1, 1, 1});
  EXPECT_TRUE(Notice()) << "it is as profiled again";
}

TEST_F(DriftTest, OnlyMembersOfTheGenerationCount) {
  Windows("stranger", {1, 3, 3, 3, 3});
  EXPECT_FALSE(Notice());
  Windows("a", {1, 3, 3, 3, 3});
  generations_.RemoveMember("a");
  EXPECT_FALSE(Notice());
}

TEST_F(DriftTest, WindowsOfAnotherGenerationDoNotCount) {
  DurableGeneration next{.number = 2, .plan = {}, .members = {{"a", "A"}}};
  generations_.Begin(next);
  message_generation_ = 1;
  Windows("a", {1, 3, 3, 3, 3, 3, 3});
  EXPECT_FALSE(Notice());
}

TEST_F(DriftTest, AWorkerThatIsForgottenIsAsProfiled) {
  Windows("a", {1, 3, 3, 3, 3});
  ASSERT_TRUE(Notice());
  drift_.Forget("a");
  EXPECT_EQ(drift_.SlowdownOf("a"), 1);
}

TEST_F(DriftTest, ThePauseAfterAnAnswerDoublesWhileDriftGoesOn) {
  policy_.windows_excluded = 0;
  double ratio = 1;
  // Drifts anew at once, and is noticed after the pause, not before.
  const auto expect_pause = [&](Duration pause) {
    drift_.Answered(policy_, now_);
    drift_.BeginGeneration();
    window_ = 0;
    ratio *= 2;
    Windows("a", {ratio, ratio, ratio, ratio});
    now_ += pause - Duration(1);
    EXPECT_FALSE(Notice()) << Seconds(pause);
    now_ += Duration(1);
    EXPECT_TRUE(Notice()) << Seconds(pause);
  };
  expect_pause(policy_.cooldown);
  expect_pause(2 * policy_.cooldown);
  expect_pause(4 * policy_.cooldown);
  now_ += 10 * 4 * policy_.cooldown - 4 * policy_.cooldown;
  expect_pause(8 * policy_.cooldown);
  now_ += 10 * 8 * policy_.cooldown - 8 * policy_.cooldown + Duration(1);
  expect_pause(policy_.cooldown);  // Ten pauses of calm, and the next one is short again.
}

// A fall, its refinement, and the return at once.
TEST_F(DriftTest, AGreatChangeDoesNotWaitForThePauseAfterARefinement) {
  const auto answer = [&] {
    drift_.Answered(policy_, now_);
    BeginGeneration(generations_.held()->number + 1);
  };
  QuickWindows("a", {9, 5, 5, 5, 5, 5});
  ASSERT_TRUE(Notice());
  answer();
  Windows("a", {9, 5.6, 5.6, 5.6, 5.6, 5.6, 5.6, 5.6, 5.6, 5.6});
  now_ += policy_.cooldown - Duration(1);
  EXPECT_FALSE(Notice());
  now_ += Duration(1);
  ASSERT_TRUE(Notice()) << "refined";
  answer();
  QuickWindows("a", {9, 1, 1, 1});
  Windows("b", {9, 3, 3, 3, 3});
  ASSERT_TRUE(Notice());
  EXPECT_TRUE(drift_.WasNoticed("a"));
  EXPECT_EQ(drift_.SlowdownOf("a"), 1);
  EXPECT_FALSE(drift_.WasNoticed("b")) << "it waits for the pause, which has doubled";
  answer();
  Windows("a", {9, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15});
  now_ += 2 * policy_.cooldown;
  ASSERT_TRUE(Notice());
  EXPECT_EQ(drift_.SlowdownOf("a"), 1.15) << "the second refinement: 10 s, and not 20";
  EXPECT_FALSE(drift_.WasNoticed("b"));
  now_ += 2 * policy_.cooldown;
  ASSERT_TRUE(Notice());
  EXPECT_TRUE(drift_.WasNoticed("b"));
}

TEST_F(DriftTest, ThePauseOfGreatChangesDoublesWhileTheyGoOn) {
  policy_.windows_excluded = 0;
  Duration pause = policy_.cooldown;
  for (int turn = 0; turn < 8; ++turn) {
    drift_.Answered(policy_, now_);
    drift_.BeginGeneration();
    const double ratio = turn % 2 == 0 ? 5 : 1;
    QuickWindows("a", {ratio, ratio, ratio, ratio, ratio});
    if (turn > 0) {
      now_ += pause - Duration(1);
      EXPECT_FALSE(Notice()) << turn;
      now_ += Duration(1);
      pause = std::min(2 * pause, policy_.longest_cooldown);
    }
    EXPECT_TRUE(Notice()) << turn;
  }
}

TEST_F(DriftTest, ItsNoiseIsHalfTheRangeWithoutTheLowestAndTheHighest) {
  Windows("a", {9, 1.3, 3, 3, 3, 9});
  Windows("b", {9, 1.5, 2.5, 2, 1.5, 3});
  ASSERT_TRUE(Notice());
  EXPECT_EQ(drift_.noise(), 0.25) << "of b; a had three equal ones in its midst";
  EXPECT_FALSE(Notice());
  EXPECT_EQ(drift_.noise(), 0) << "nothing is noticed";
}

TEST_F(DriftTest, OfFourWindowsTheTwoInTheMidstCount) {
  Windows("a", {9, 5, 2, 1.5, 4});
  ASSERT_TRUE(Notice());
  EXPECT_EQ(drift_.noise(), 0.25) << "(4 - 2) / 2 / 4";
}

TEST_F(DriftTest, OneWindowHasNoNoise) {
  policy_.windows = policy_.windows_over = 2;
  Windows("a", {9, 5, 2});
  ASSERT_TRUE(Notice());
  EXPECT_EQ(drift_.noise(), 0);
}

}  // namespace
}  // namespace heddle::elastic
