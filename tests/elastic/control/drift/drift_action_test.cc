// What is done about drift, as elastic.drift says.
#include "tests/elastic/control/drift/drift_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

using DriftActionTest = DriftFixture;

TEST_F(DriftActionTest, ObservedIsLoggedAndNoPlanIsLookedFor) {
  job_.policy.drift.action = DriftAction::kObserve;
  FormOf({"a", "b"}, 1e9);
  Slow("b", 3);
  EXPECT_EQ(Count("drift"), 1);
  EXPECT_FALSE(request_.has_value());
  Slow("b", 9);
  EXPECT_EQ(Count("drift"), 1) << "a pause, as after an answer";
}

TEST_F(DriftActionTest, AdvisedIsWhatAPlanWouldSave) {
  job_.policy.drift.action = DriftAction::kAdvise;
  FormOf({"a", "b"}, 1e9);
  Slow("b", 3);
  ASSERT_TRUE(request_.has_value());
  AnswerPlan();  // Twice as quick.
  EXPECT_EQ(Last("a", wire::ToWorker::kPrepare), nullptr);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  const LogEvent& kept = Logged("plan_kept");
  EXPECT_THAT(std::get<std::string>(*kept.Find("reason")), HasSubstr("elastic.drift is advise"));
  EXPECT_THAT(std::get<RawJson>(*kept.Find("alternatives")).text, HasSubstr("replan"));
}

TEST_F(DriftActionTest, WhoComesTakesPartAlsoWhereDriftIsOnlyAdvised) {
  job_.policy.drift.action = DriftAction::kAdvise;
  FormOf({"a", "b"}, 1e9);
  Join("c");
  Slow("b", 3);
  MeasureAll([](const auto& /*pair*/) { return 1e9; });
  ASSERT_TRUE(request_.has_value());
  AnswerPlan();
  EXPECT_NE(Last("c", wire::ToWorker::kPrepare), nullptr);
}

TEST_F(DriftActionTest, WithoutAPlanThereIsAPauseAsAfterOne) {
  FormOf({"a", "b"}, 1e9);
  Slow("b", 3);
  ASSERT_TRUE(request_.has_value());
  PlanOutcome none;
  none.request_id = request_->id;
  none.status = InternalError("none");
  request_.reset();
  Tell(Planned{none});
  EXPECT_EQ(Count("plan_kept"), 1);
  Slow("b", 9);
  EXPECT_FALSE(request_.has_value());
}

TEST_F(DriftActionTest, TheStatusShowsWhatIsMeasuredAndWhatIsPlannedWith) {
  FormOf({"a", "b"}, 1e9);
  const auto worker = [&] { return coordinator_.StatusAt(now_).workers(1); };
  EXPECT_FALSE(worker().has_measured_slowdown());
  Slow("b", 3, 4);
  EXPECT_EQ(worker().slowdown(), 1) << "three windows are too few";
  EXPECT_EQ(worker().measured_slowdown(), 3);
  Slow("b", 3, 1);
  EXPECT_EQ(worker().slowdown(), 3);
  EXPECT_FALSE(worker().has_measured_slowdown()) << "nothing was measured since";
}

TEST_F(DriftActionTest, ActedOnIsWhatPays) {
  FormOf({"a", "b"}, 1e9);
  Slow("b", 3);
  ASSERT_TRUE(request_.has_value());
  AnswerPlan();
  EXPECT_NE(Last("a", wire::ToWorker::kPrepare), nullptr);
}

}  // namespace
}  // namespace heddle::elastic
