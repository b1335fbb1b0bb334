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
  AnswerPlan();
  const int64_t generation = Last("a", wire::ToWorker::kPrepare)->prepare().generation();
  AnswerPrepared(generation);
  AnswerStopped();
  AnswerReady(members_, generation);
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
  EmulateRequested slower;
  slower.worker = "b";
  slower.emulation.set_link_bytes_per_second(1e8);
  slower.set_link = true;
  Tell(slower);
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
  AnswerPlan();
  const int64_t generation = Last("a", wire::ToWorker::kPrepare)->prepare().generation();
  AnswerPrepared(generation);
  AnswerStopped();
  AnswerReady(members_, generation);
  BeginWindows();
  Windows({9, 4, 4, 4, 4, 4, 4, 4, 4, 4});
  EXPECT_EQ(Count("links_suspected"), 0);
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
