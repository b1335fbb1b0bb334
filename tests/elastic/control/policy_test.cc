// After which steps a checkpoint and a validation are due.
#include "elastic/control/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int64_t> StepsOf(bool (*due)(const JobPolicy&, int64_t), const JobPolicy& policy) {
  std::vector<int64_t> steps;
  for (int64_t step = -3; step <= 12; ++step) {
    if (due(policy, step)) {
      steps.push_back(step);
    }
  }
  return steps;
}

TEST(PolicyTest, CheckpointsAreDueAtTheirStepsAndAtTheEnd) {
  JobPolicy policy;
  policy.total_steps = 10;
  EXPECT_THAT(StepsOf(CheckpointDue, policy), ElementsAre(10));
  policy.checkpoint_every = 3;
  EXPECT_THAT(StepsOf(CheckpointDue, policy), ElementsAre(3, 6, 9, 10, 12));
  policy.final_checkpoint = false;
  EXPECT_THAT(StepsOf(CheckpointDue, policy), ElementsAre(3, 6, 9, 12));
  policy.checkpoint_every = 0;
  EXPECT_THAT(StepsOf(CheckpointDue, policy), IsEmpty());
  policy.checkpoint_every = 1;
  EXPECT_THAT(StepsOf(CheckpointDue, policy), testing::SizeIs(12)) << "never before the first step";
}

TEST(PolicyTest, ValidationsAreDueAtTheirStepsAndAtTheEndWhereAskedFor) {
  JobPolicy policy;
  policy.total_steps = 10;
  EXPECT_THAT(StepsOf(ValidationDue, policy), IsEmpty());
  policy.final_validation = true;
  EXPECT_THAT(StepsOf(ValidationDue, policy), ElementsAre(10));
  policy.validate_every = 4;
  EXPECT_THAT(StepsOf(ValidationDue, policy), ElementsAre(4, 8, 10, 12));
  policy.final_validation = false;
  EXPECT_THAT(StepsOf(ValidationDue, policy), ElementsAre(4, 8, 12));
  policy.validate_every = 1;
  EXPECT_THAT(StepsOf(ValidationDue, policy), testing::SizeIs(12));
  policy.total_steps = 0;
  policy.validate_every = 0;
  policy.final_validation = true;
  EXPECT_THAT(StepsOf(ValidationDue, policy), IsEmpty()) << "nothing is due before a step";
}

}  // namespace
}  // namespace heddle::elastic
