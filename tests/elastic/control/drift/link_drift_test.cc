// Steps that take longer for good lead to links that are measured again, and those that changed to
// another plan.
#include "tests/elastic/control/drift/drift_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

using LinkDriftTest = DriftFixture;

TEST_F(LinkDriftTest, ALinkThatCarriesATenthIsPlannedWith) {
  FormOf({"a", "b", "c"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1, 4, 4, 4});
  EXPECT_EQ(Count("links_suspected"), 0);
  Windows({4});
  EXPECT_EQ(Number("links_suspected", "usual_seconds"), 1);
  EXPECT_EQ(Number("links_suspected", "seconds"), 4);
  EXPECT_FALSE(request_.has_value()) << "nothing is known yet";
  MeasureAll([](const auto& pair) { return pair.second == "c" ? 1e8 : 0.9e9; });
  ASSERT_TRUE(request_.has_value());
  EXPECT_THAT(RatesOf(request_->links), UnorderedElementsAre(0.9e9, 1e8, 1e8));
  EXPECT_EQ(Count("link_drift"), 1);
  EXPECT_EQ(Number("link_drift", "planned_bytes_per_second"), 1e9);
  EXPECT_EQ(Number("link_drift", "bytes_per_second"), 1e8);
  EXPECT_EQ(std::get<int64_t>(*Logged("link_drift").Find("pairs")), 2);
  Change();
  const LogEvent& decision = Logged("decision");
  EXPECT_EQ(std::get<std::string>(*decision.Find("cause")), "drift");
  EXPECT_THAT(std::get<RawJson>(*decision.Find("evidence")).text,
              HasSubstr("carries 100 MB/s, 1e+03 MB/s were planned with"));
}

TEST_F(LinkDriftTest, OneThatIsQuickerAgainIsPlannedWithToo) {
  FormOf({"a", "b"}, 1e8);
  Windows({9, 4, 4, 4, 4, 4, 1, 1, 1, 1});
  MeasureAll([](const auto& /*pair*/) { return 1e9; });
  EXPECT_TRUE(request_.has_value());
  EXPECT_EQ(Number("link_drift", "bytes_per_second"), 1e9);
}

TEST_F(LinkDriftTest, StepsThatVaryAreNoSuspicion) {
  FormOf({"a", "b"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1, 4, 1, 4, 4, 1, 4, 0.1, 0.1, 4, 4, 1.2, 1.2, 1.2, 1.2});
  EXPECT_EQ(Count("links_suspected"), 0);
}

// Whatever slows the steps: for a while it is not looked for again, and the steps as they are now
// are the usual ones then.
TEST_F(LinkDriftTest, LinksThatCarryWhatTheyDidAreNoReason) {
  FormOf({"a", "b"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1, 4, 4, 4, 4});
  MeasureAll([](const auto& /*pair*/) { return 0.6e9; });
  EXPECT_FALSE(request_.has_value());
  EXPECT_EQ(Count("link_drift"), 0);
  Windows({4, 4, 4, 4, 4, 9, 9, 9, 9});
  EXPECT_EQ(Count("links_suspected"), 1) << "it was answered just now";
  now_ += job_.policy.drift.cooldown;
  Windows({9});
  EXPECT_EQ(Count("links_suspected"), 2);
}

// They are used, so that something joins their ends: what was measured first counts.
TEST_F(LinkDriftTest, AMeasurementThatFailsChangesNothing) {
  FormOf({"a", "b"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1, 4, 4, 4, 4});
  MeasureAll([](const auto& /*pair*/) { return 0.0; });
  EXPECT_EQ(Count("link_drift"), 0);
  now_ += job_.policy.drift.cooldown;
  Windows({4, 4, 4, 4, 4, 9, 9, 9, 9});
  EXPECT_EQ(Count("links_suspected"), 2);
  Heartbeats();  // The links are asked for.
  now_ += job_.policy.links.timeout;
  Heartbeats();
  EXPECT_EQ(std::get<std::string>(*Logged("links_measured").Find("result")), "timeout");
  Join("c");
  MeasureAll([](const auto& /*pair*/) { return 2e9; });
  ASSERT_TRUE(request_.has_value());
  EXPECT_THAT(RatesOf(request_->links), UnorderedElementsAre(1e9, 2e9, 2e9));
}

// An emulated rate makes a place of its own, which is measured without a suspicion.
TEST_F(LinkDriftTest, AnotherEmulatedRateIsComparedByWorker) {
  FormOf({"a", "b"}, 1e9);
  Emulate("b", 1e8);
  Heartbeats();
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  EXPECT_FALSE(request_.has_value());
  Windows({9, 1, 1, 1, 1, 1, 4, 4, 4, 4});
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(Number("link_drift", "planned_bytes_per_second"), 1e9);
}

TEST_F(LinkDriftTest, AGenerationHasItsOwnUsualSteps) {
  FormOf({"a", "b"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1});
  Join("c");
  MeasureAll([](const auto& /*pair*/) { return 1e9; });
  Change();
  Windows({9, 4, 4, 4, 4, 4, 4, 4, 4, 4});
  EXPECT_EQ(Count("links_suspected"), 0);
}

// What is noticed of c begins a pause for workers, and leaves what the links are compared with.
TEST_F(LinkDriftTest, AWorkerWhoseSpeedIsNoticedHidesNoLink) {
  job_.policy.drift.action = DriftAction::kObserve;
  FormOf({"a", "b", "c"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1}, {{"c", 1.5}});
  EXPECT_EQ(Count("drift"), 1);
  now_ += job_.policy.drift.cooldown;
  Windows({4, 4, 4}, {{"c", 1.5}});
  EXPECT_EQ(Count("drift"), 2) << "just before the links would be suspected";
  EXPECT_EQ(Count("links_suspected"), 0);
  Windows({4}, {{"c", 1.5}});
  EXPECT_EQ(Count("links_suspected"), 1);
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  EXPECT_EQ(Count("link_drift"), 1);
  EXPECT_FALSE(request_.has_value()) << "both are only observed";
}

TEST_F(LinkDriftTest, WhatOneMemberComputesLongerExplainsTheStep) {
  job_.policy.drift.action = DriftAction::kObserve;
  FormOf({"a", "b", "c"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1});
  Windows({4, 4, 4, 4, 4, 4}, {{"b", 3.5}});
  EXPECT_EQ(Count("links_suspected"), 0) << "4 is not beyond 1.2 times 3.5";
  Windows({4, 4, 4}, {{"b", 3}});
  EXPECT_EQ(Count("links_suspected"), 0) << "three windows";
  Windows({4}, {{"b", 3}});
  EXPECT_EQ(Count("links_suspected"), 1) << "4 is beyond 1.2 times 3";
}

TEST_F(LinkDriftTest, WhatOneMemberComputesLessLongExplainsTheStep) {
  job_.policy.drift.action = DriftAction::kObserve;
  FormOf({"a", "b"}, 1e9);
  Windows({9, 4, 4, 4, 4, 4}, {{"b", 4}});
  Windows({1, 1, 1, 1, 1, 1}, {{"b", 1}});
  EXPECT_EQ(Count("links_suspected"), 0);
  Windows({0.5, 0.5, 0.5, 0.5}, {{"b", 1}});
  EXPECT_EQ(Count("links_suspected"), 1);
}

// A newcomer's plan takes what is known of the links, and says so.
TEST_F(LinkDriftTest, APlanForAnotherReasonNamesTheLinkThatChanged) {
  FormOf({"a", "b"}, 1e9);
  Emulate("b", 1e8);
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  EXPECT_EQ(Count("link_drift"), 0) << "no plan is looked for";
  Join("c");
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(Count("link_drift"), 1);
  EXPECT_EQ(Number("link_drift", "planned_bytes_per_second"), 1e9);
  Change();
  const LogEvent& decision = Logged("decision");
  EXPECT_EQ(std::get<std::string>(*decision.Find("cause")), "join");
  EXPECT_THAT(std::get<RawJson>(*decision.Find("evidence")).text,
              HasSubstr("carries 100 MB/s, 1e+03 MB/s were planned with"));
  Heartbeats();
  EXPECT_FALSE(request_.has_value()) << "the plan counts on it";
  EXPECT_EQ(Count("link_drift"), 1);
}

TEST_F(LinkDriftTest, ALinkThatChangesWhileAPlanIsPreparedIsPlannedWithNext) {
  FormOf({"a", "b"}, 1e9);
  Join("c");
  MeasureAll([](const auto& /*pair*/) { return 1e9; });
  ASSERT_TRUE(request_.has_value());
  Emulate("b", 1e8);
  Change();
  EXPECT_EQ(Count("link_drift"), 0) << "it is not measured yet";
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  EXPECT_EQ(Count("link_drift"), 1);
  EXPECT_TRUE(request_.has_value());
}

// The next generation's first steps would be slow, too.
TEST_F(LinkDriftTest, ASuspicionOutlivesAChangeOfPlan) {
  FormOf({"a", "b"}, 1e9);
  Windows({9, 1, 1, 1, 1, 1, 4});
  Join("c");
  MeasureAll([](const auto& /*pair*/) { return 1e9; });
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(Count("links_suspected"), 1) << "one window is enough when the plan changes";
  Change();
  EXPECT_EQ(Count("link_drift"), 0);
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  EXPECT_EQ(Count("link_drift"), 1);
  EXPECT_TRUE(request_.has_value());
}

TEST_F(LinkDriftTest, ARestartedCoordinatorTakesTheLinksAsItMeasuresThem) {
  FormOf({"a", "b"}, 1e9);
  Restart({"a", "b"});
  MeasureAll([](const auto& /*pair*/) { return 1e8; });
  Windows({9, 1, 1, 1, 1, 1, 4, 4, 4, 4});
  MeasureAll([](const auto& /*pair*/) { return 1e9; });
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(Number("link_drift", "planned_bytes_per_second"), 1e8);
}

}  // namespace
}  // namespace heddle::elastic
