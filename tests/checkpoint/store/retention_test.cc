/// \file
/// Goal: which steps stay. Method: a table by hand, and random rules against sets that are put
/// together rule by rule.
#include "checkpoint/store/retention.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>

#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<RetentionCandidate> kRun = {
    {.step = 0, .loss = {}},    {.step = 500, .loss = 3.0},  {.step = 1000, .loss = 2.0},
    {.step = 1500, .loss = {}}, {.step = 2000, .loss = 2.5}, {.step = 2500, .loss = 2.75}};

TEST(RetentionTest, EachRuleKeepsItsOwn) {
  EXPECT_THAT(StepsToRemove(kRun, {.keep_last = 2}), ElementsAre(0, 500, 1000, 1500));
  EXPECT_THAT(StepsToRemove(kRun, {.keep_last = 1}), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_THAT(StepsToRemove(kRun, {.keep_last = 6}), IsEmpty());
  EXPECT_THAT(StepsToRemove(kRun, {.keep_last = 60}), IsEmpty());
  EXPECT_THAT(StepsToRemove({}, {.keep_last = 1}), IsEmpty());
  EXPECT_THAT(StepsToRemove(kRun, {.keep_last = 1, .keep_every = 1000}), ElementsAre(500, 1500));
  EXPECT_THAT(StepsToRemove(kRun, {.keep_last = 1, .keep_best = true}),
              ElementsAre(0, 500, 1500, 2000));
  EXPECT_THAT(StepsToRemove(kRun, {.keep_last = 1, .protected_steps = {500, 7}}),
              ElementsAre(0, 1000, 1500, 2000));
  EXPECT_THAT(
      StepsToRemove(
          kRun, {.keep_last = 2, .keep_every = 1500, .keep_best = true, .protected_steps = {500}}),
      IsEmpty());
}

TEST(RetentionTest, OfEqualLossesTheNewerIsBestAndNanIsNone) {
  const std::vector<RetentionCandidate> run = {{.step = 1, .loss = 1.0},
                                               {.step = 2, .loss = 1.0},
                                               {.step = 3, .loss = std::nan("")},
                                               {.step = 4, .loss = {}}};
  EXPECT_THAT(StepsToRemove(run, {.keep_last = 1, .keep_best = true}), ElementsAre(1, 3));
}

TEST(RetentionTest, NanIsNeverTheBestWhereverItStands) {
  for (const size_t place : {0U, 1U, 2U}) {
    std::vector<RetentionCandidate> run = {{.step = 1, .loss = 3.0},
                                           {.step = 2, .loss = 2.0},
                                           {.step = 3, .loss = 4.0},
                                           {.step = 4, .loss = 5.0}};
    run[place].loss = std::nan("");
    const int64_t best = place == 1 ? 1 : 2;
    const auto leaving = StepsToRemove(run, {.keep_last = 1, .keep_best = true});
    EXPECT_EQ(leaving.size(), 2U);
    EXPECT_THAT(leaving, ::testing::Not(::testing::Contains(best))) << "NaN at " << place;
  }
  const std::vector<RetentionCandidate> none = {{.step = 1, .loss = std::nan("")},
                                                {.step = 2, .loss = {}}};
  EXPECT_THAT(StepsToRemove(none, {.keep_last = 1, .keep_best = true}), ElementsAre(1));
}

TEST(RetentionTest, RandomRulesKeepTheUnion) {
  Random random(TestSeed());
  for (int round = 0; round < 500; ++round) {
    std::vector<RetentionCandidate> run;
    int64_t step = 0;
    for (uint64_t n = random.Below(20); n > 0; --n) {
      step += random.Between(1, 9);
      run.push_back({.step = step, .loss = {}});
      if (random.Below(2) == 0) {
        run.back().loss =
            random.Below(6) == 0 ? std::nan("") : static_cast<double>(random.Below(10));
      }
    }
    const RetentionOptions options{.keep_last = random.Between(1, 5),
                                   .keep_every = random.Between(0, 6),
                                   .keep_best = random.Below(2) == 0,
                                   .protected_steps = {random.Between(1, 50)}};
    std::set<int64_t> stays(options.protected_steps.begin(), options.protected_steps.end());
    double least = INFINITY;
    int64_t best = -1;
    for (size_t i = 0; i < run.size(); ++i) {
      if (run.size() - i <= static_cast<size_t>(options.keep_last) ||
          (options.keep_every != 0 && run[i].step % options.keep_every == 0)) {
        stays.insert(run[i].step);
      }
      if (run[i].loss.value_or(INFINITY) <= least && run[i].loss) {
        least = *run[i].loss;
        best = run[i].step;
      }
    }
    if (options.keep_best) {
      stays.insert(best);
    }
    std::vector<int64_t> expected;
    for (const RetentionCandidate& candidate : run) {
      if (!stays.contains(candidate.step)) {
        expected.push_back(candidate.step);
      }
    }
    ASSERT_EQ(StepsToRemove(run, options), expected) << round;
  }
}

}  // namespace
}  // namespace heddle::checkpoint
