// Who was asked to leave leaves, whoever is lost or started again meanwhile.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/membership/roster.h"
#include "elastic/protocol/version.h"

namespace heddle::elastic {
namespace {

using testing::SizeIs;
using Kind = Roster::Answer::Kind;

class LeavingTest : public testing::Test {
 protected:
  static wire::Hello HelloOf(const std::string& name, char incarnation) {
    wire::Hello hello;
    hello.set_name(name);
    hello.set_incarnation(std::string(16, incarnation));
    hello.set_protocol_version(kProtocolVersion);
    (*hello.mutable_arithmetic())["processor"] = "EPYC";
    return hello;
  }

  JobPolicy policy_;
  Time now_{std::chrono::seconds(100)};
  Roster roster_;
  Outbox out_{[] { return DurableState(); }};
};

TEST_F(LeavingTest, AReleaseIsKeptForItsIncarnation) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Drain("a", "SIGTERM");
  roster_.KeepRelease("a", /*requeue=*/true);
  roster_.Dismiss("a", "released", false, out_);
  const auto answer = roster_.Judge(HelloOf("a", 'A'), /*ended=*/true, now_, policy_.lease);
  EXPECT_EQ(answer.kind, Kind::kReleased);
  EXPECT_TRUE(answer.release.requeue());
  EXPECT_EQ(answer.release.reason(), "SIGTERM");
  EXPECT_EQ(roster_.Judge(HelloOf("a", 'B'), false, now_, policy_.lease).kind, Kind::kJoin);

  DurableState durable;
  roster_.Store(durable);
  Roster next;
  next.Restore(durable, now_);
  EXPECT_EQ(next.Judge(HelloOf("a", 'A'), false, now_, policy_.lease).kind, Kind::kReleased)
      << "by a restarted coordinator, too";
}

TEST_F(LeavingTest, OnlySoManyReleasesAreKept) {
  for (int i = 0; i < 300; ++i) {
    wire::Hello hello = HelloOf("a", 'A');
    hello.set_incarnation(fmt::format("{:016}", i));
    roster_.Join(1, hello, now_);
    roster_.KeepRelease("a", false);
    roster_.Dismiss("a", "released", false, out_);
  }
  DurableState durable;
  roster_.Store(durable);
  ASSERT_THAT(durable.releases, SizeIs(256));
  EXPECT_EQ(durable.releases.front().incarnation, fmt::format("{:016}", 44));
}

TEST_F(LeavingTest, WhoIsToLeaveIsSoAfterARestart) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Join(2, HelloOf("b", 'B'), now_);
  roster_.Drain("a", "drained");
  DurableState durable;
  roster_.Store(durable);
  Roster next;
  next.Restore(durable, now_);
  EXPECT_TRUE(next.at("a").draining);
  EXPECT_EQ(next.at("a").leave_reason, "drained");
  EXPECT_FALSE(next.at("b").draining);
}

}  // namespace
}  // namespace heddle::elastic
