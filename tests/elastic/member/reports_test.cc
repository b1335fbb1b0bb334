// What is kept for a coordinator that is away, and what of it becomes void.
#include "elastic/member/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/member/taken.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ReportsTest : public testing::Test {
 protected:
  void Add(std::initializer_list<int64_t> steps) {
    for (const int64_t step : steps) {
      wire::StepRecord record;
      record.set_step(step);
      reports_.AddStep(record);
    }
  }
  std::vector<int64_t> StepsAfter(int64_t step) const {
    std::vector<int64_t> steps;
    for (const wire::StepRecord& record : reports_.StepsAfter(step)) {
      steps.push_back(record.step());
    }
    return steps;
  }

  Taken taken_;
  Reports reports_{4};
};

TEST_F(ReportsTest, TheOldestRecordsGoFirst) {
  Add({1, 2, 3, 4, 5});
  EXPECT_THAT(StepsAfter(0), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(StepsAfter(3), ElementsAre(4, 5));
  EXPECT_THAT(StepsAfter(5), IsEmpty());
}

TEST_F(ReportsTest, AStepThatIsRunAgainVoidsThoseAfterIt) {
  Add({1, 2, 3, 2});
  EXPECT_THAT(StepsAfter(0), ElementsAre(1, 2));
}

TEST_F(ReportsTest, RecordsAreForgottenOnEitherSide) {
  Add({1, 2, 3, 4});
  reports_.ForgetStepsThrough(1);
  reports_.ForgetStepsAfter(3);
  EXPECT_THAT(StepsAfter(0), ElementsAre(2, 3));
  reports_.ForgetStepsAfter(0);
  EXPECT_THAT(StepsAfter(0), IsEmpty());
}

TEST_F(ReportsTest, StepsAreSaidInOneMessageAndOnlyIfThereAreAny) {
  Add({1, 2, 3});
  reports_.SayStepsAfter(1, taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("step_done"));
  EXPECT_EQ(taken_.Message().step_done().records_size(), 2);
  EXPECT_EQ(taken_.Message().step_done().records(0).step(), 2);
  reports_.SayStepsAfter(3, taken_.out());
  EXPECT_THAT(taken_.Words(), IsEmpty());
}

TEST_F(ReportsTest, SavesAndValidationsAreSaidAgainButNoSaveThatWasLeftOut) {
  wire::CheckpointPart part;
  for (int64_t step = 1; step <= 6; ++step) {
    part.set_step(step);
    part.set_skipped(step == 6);
    reports_.AddSave(part, taken_.out());
  }
  for (int64_t step = 1; step <= 17; ++step) {
    reports_.AddValidation({.step = step, .loss = 0.5}, taken_.out());
  }
  EXPECT_EQ(taken_.Words().size(), 6U + 17U) << "all are said when they come";
  reports_.SayOthersAgain(taken_.out());
  EXPECT_EQ(taken_.Words().size(), 4U + 16U) << "the newest are said again";
  EXPECT_EQ(taken_.Message().checkpoint_part().step(), 2);
}

}  // namespace
}  // namespace heddle::elastic
