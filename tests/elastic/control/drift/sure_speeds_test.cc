// A change of plan counts on what is sure of every member's speed.
#include "tests/elastic/control/drift/drift_fixture.h"

namespace heddle::elastic {
namespace {

class SureSpeedsTest : public DriftFixture {
 protected:
  SureSpeedsTest() { job_.policy.total_steps = 10'000; }
  // Members report windows, one for each of `ratios`, in which a takes so many times as long as
  // predicted. The first of a generation does not count.
  void RatiosOfA(const std::vector<double>& ratios) {
    for (const double ratio : ratios) {
      Windows({1}, {{"a", ratio}});
    }
  }
  // A newcomer is the reason for a change; returns the slowdown of a that the plan is asked for with.
  double CountedWhenJoins(const std::string& newcomer) {
    Join(newcomer);
    MeasureAll([](const auto& /*pair*/) { return 1e9; });
    EXPECT_TRUE(request_.has_value());
    EXPECT_EQ(request_->candidates[1].slowdown, 1) << "b is as profiled";
    return request_->candidates[0].slowdown;
  }
};

TEST_F(SureSpeedsTest, NineWindowsThatAgreeAreSure) {
  FormOf({"a", "b"}, 1e9);
  RatiosOfA({9, 1.16, 1.08, 1.1, 1.12, 1.14, 1.06, 1.1, 1.12, 1.1});
  EXPECT_EQ(CountedWhenJoins("c"), 1.1) << "the median";
  EXPECT_EQ(Count("drift"), 0);
  Change();
  RatiosOfA({9, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3});
  EXPECT_EQ(Count("drift"), 0)
      << "1.3 over the 1.1 that the plan counts on is within the threshold";
  RatiosOfA({1.35, 1.35, 1.35, 1.35});
  EXPECT_EQ(Count("drift"), 1);
}

TEST_F(SureSpeedsTest, EightAreTooFew) {
  FormOf({"a", "b"}, 1e9);
  RatiosOfA({9, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1});
  EXPECT_EQ(CountedWhenJoins("c"), 1);
}

TEST_F(SureSpeedsTest, WhatVariesIsNotSure) {
  FormOf({"a", "b"}, 1e9);
  RatiosOfA({9, 1, 1.3, 1, 1.3, 1, 1.3, 1, 1.3, 1.3});
  EXPECT_EQ(CountedWhenJoins("c"), 1) << "a noise of 0.3 / 2 / 1.3, and 0.095 is allowed";
}

TEST_F(SureSpeedsTest, WhatIsWithinItsNoiseIsAsPlanned) {
  FormOf({"a", "b"}, 1e9);
  RatiosOfA({9, 1.02, 0.98, 1.03, 0.97, 1.01, 1.01, 1.03, 0.97, 1.01});
  EXPECT_EQ(CountedWhenJoins("c"), 1);
}

TEST_F(SureSpeedsTest, NoneOfItIsAReasonForAChange) {
  FormOf({"a", "b"}, 1e9);
  for (int i = 0; i < 100; ++i) {
    RatiosOfA({1.15});
  }
  EXPECT_FALSE(request_.has_value());
}

TEST_F(SureSpeedsTest, APlanThatIsKeptChangesNothing) {
  FormOf({"a", "b"}, 1e9);
  RatiosOfA({9, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1});
  EXPECT_EQ(CountedWhenJoins("c"), 1.1);
  PlanOutcome none;
  none.request_id = request_->id;
  none.status = InternalError("none");
  Tell(Planned{none});
  EXPECT_EQ(Count("plan_kept"), 1);
  RatiosOfA({1.3, 1.3, 1.3, 1.3});
  EXPECT_EQ(Count("drift"), 1) << "1.3 over the 1 that the plan in force counts on";
}

}  // namespace
}  // namespace heddle::elastic
