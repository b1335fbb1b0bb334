// Every limit follows from the lease: one change moves all of them in proportion.
#include "elastic/control/limits.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

std::map<std::string, double> ValuesWith(Duration lease) {
  JobPolicy policy;
  SetLease(policy, lease);
  std::map<std::string, double> values;
  for (const Limit& limit : LimitsOf(policy)) {
    EXPECT_TRUE(values.emplace(limit.name, limit.value).second) << limit.name << " is there twice";
    EXPECT_FALSE(limit.source.empty() || limit.meaning.empty()) << limit.name;
  }
  return values;
}

// The numbers of policy.h are those of the default lease.
TEST(LimitsTest, TheDefaultLeaseGivesTheDefaultLimits) {
  const JobPolicy policy;
  EXPECT_EQ(policy.lease, kDefaultLease);
  std::map<std::string, double> defaults;
  for (const Limit& limit : LimitsOf(policy)) {
    defaults[limit.name] = limit.value;
    EXPECT_THAT(limit.source, testing::Not(HasSubstr(", and "))) << limit.name;
  }
  EXPECT_EQ(ValuesWith(kDefaultLease), defaults);
  EXPECT_EQ(defaults.at("heartbeat"), 0.2);
  EXPECT_EQ(defaults.at("reply_timeout"), 20);
  EXPECT_EQ(defaults.at("cut_off_timeout"), 600);
}

TEST(LimitsTest, ALongerLeaseMovesAllInProportion) {
  const std::set<std::string> fixed = {"heartbeat", "gap", "notice", "paused_timeout",
                                       "max_recoveries_without_step"};
  const auto with_3 = ValuesWith(seconds(3));
  const auto with_12 = ValuesWith(seconds(12));
  for (const auto& [name, value] : with_3) {
    EXPECT_NEAR(with_12.at(name), fixed.count(name) > 0 ? value : 4 * value, 1e-9) << name;
  }
}

// What work takes does not shrink with the lease, and links are measured within a minute.
TEST(LimitsTest, TheShortestAndTheLongestLeaseMeetTheirBounds) {
  const std::map<std::string, double> least = {{"heartbeat", 0.05},
                                               {"reconnect_grace", 0.2},
                                               {"probe", 0.2},
                                               {"coalesce", 0.05},
                                               {"adopt_extra", 1},
                                               {"reply_timeout", 10},
                                               {"stop_timeout", 60},
                                               {"move_timeout", 30},
                                               {"hang_timeout", 5},
                                               {"profile_timeout", 30},
                                               {"plan_timeout", 60},
                                               {"first_retry", 1},
                                               {"last_retry", 30},
                                               {"formation_timeout", 15},
                                               {"cut_off_timeout", 300},
                                               {"mass_silence", 15},
                                               {"coordinator_wait", 300},
                                               {"links.timeout", 5},
                                               {"links.wait", 15},
                                               {"quarantine.short_life", 15},
                                               {"quarantine.first", 5},
                                               {"quarantine.longest", 100},
                                               {"drift.cooldown", 2},
                                               {"drift.longest_cooldown", 100}};
  const auto shortest = ValuesWith(milliseconds(500));
  for (const auto& [name, value] : least) {
    EXPECT_EQ(shortest.at(name), value) << name;
  }
  const auto longest = ValuesWith(std::chrono::hours(1));
  EXPECT_EQ(longest.at("heartbeat"), 0.2);
  EXPECT_EQ(longest.at("links.timeout"), 60);
}

// Whatever the lease: nobody is judged before it could have spoken.
TEST(LimitsTest, LimitsFitEachOther) {
  for (const Duration lease : {Duration(milliseconds(500)), Duration(milliseconds(800)),
                               Duration(seconds(1)), Duration(seconds(2)), Duration(seconds(3)),
                               Duration(seconds(60)), Duration(std::chrono::hours(1))}) {
    JobPolicy policy;
    SetLease(policy, lease);
    EXPECT_EQ(policy.lease, lease);
    EXPECT_GE(policy.lease, 5 * policy.heartbeat) << "a lease is lost by more than one heartbeat";
    EXPECT_GT(policy.probe / 2, policy.heartbeat) << "an accused worker speaks within half a probe";
    EXPECT_LT(policy.probe, policy.lease);
    EXPECT_LT(policy.reconnect_grace, policy.lease);
    EXPECT_LT(policy.coalesce, policy.lease);
    EXPECT_GT(policy.reply_timeout, policy.lease);
    EXPECT_GE(policy.stop_timeout, policy.reply_timeout);
    EXPECT_GT(policy.cut_off_timeout, policy.stop_timeout);
    EXPECT_GE(policy.coordinator_wait, policy.move_timeout);
    EXPECT_LE(policy.first_retry, policy.last_retry);
    EXPECT_LE(policy.drift.cooldown, policy.drift.longest_cooldown);
    EXPECT_LE(policy.quarantine.first, policy.quarantine.longest);
    EXPECT_GT(policy.quarantine.first, policy.lease) << "longer than a loss takes to be seen";
    EXPECT_LE(policy.links.timeout, policy.links.wait);
    EXPECT_GE(kGap, 5 * policy.heartbeat);
  }
}

TEST(LimitsTest, WhatOthersAddIsShown) {
  JobPolicy policy;
  policy.stop_timeout += seconds(600);
  policy.paused_timeout = seconds(20);
  std::map<std::string, Limit> limits;
  for (const Limit& limit : LimitsOf(policy)) {
    limits[limit.name] = limit;
  }
  EXPECT_EQ(limits.at("stop_timeout").value, 720);
  EXPECT_EQ(limits.at("stop_timeout").source, "lease × 40, at least 1m, and 10m");
  EXPECT_EQ(limits.at("probe").source, "lease / 6, at least 200ms");
  EXPECT_EQ(limits.at("heartbeat").source, "lease / 15, at least 50ms, at most 200ms");
  EXPECT_EQ(limits.at("reply_timeout").source, "lease × 20 / 3, at least 10s");
  EXPECT_EQ(limits.at("paused_timeout").source, "fixed");
}

}  // namespace
}  // namespace heddle::elastic
