// What `heddle config` shows of a job.
#include "elastic/service/inspect/limits_in_force.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

std::map<std::string, Limit> ByName(const job::JobConfig& job) {
  std::map<std::string, Limit> limits;
  for (const Limit& limit : LimitsInForce(job)) {
    EXPECT_TRUE(limits.emplace(limit.name, limit).second) << limit.name << " is there twice";
  }
  return limits;
}

TEST(LimitsInForceTest, AJobsLeaseIsInAllOfThem) {
  job::JobConfig job;
  EXPECT_EQ(job.elastic.lease, kDefaultLease);
  EXPECT_EQ(job.elastic.operation_timeout, job::kMoveLeases * kDefaultLease);
  job.elastic.lease = std::chrono::seconds(6);
  job.elastic.operation_timeout = std::chrono::seconds(60);
  auto limits = ByName(job);
  EXPECT_EQ(limits.at("lease").value, 6);
  EXPECT_EQ(limits.at("probe").value, 1);
  EXPECT_EQ(limits.at("operation_timeout").source, "lease × 10");
  EXPECT_EQ(limits.at("hello_within").value, 5) << "no job is known there";
  EXPECT_THAT(limits.at("hello_within").source, HasSubstr("default lease of 3 s"));
  job.elastic.operation_timeout = std::chrono::seconds(7);
  job.checkpoint.background = false;
  limits = ByName(job);
  EXPECT_EQ(limits.at("operation_timeout").value, 7);
  EXPECT_EQ(limits.at("operation_timeout").source, "elastic.operation_timeout");
  EXPECT_EQ(limits.at("stop_timeout").value, 240 + 600);
}

TEST(LimitsInForceTest, TableAndJsonHaveAll) {
  const std::vector<Limit> limits = LimitsInForce({});
  const auto json = nlohmann::json::parse(LimitsJson(limits));
  const std::string table = LimitsTable(limits);
  ASSERT_EQ(json.size(), limits.size());
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), std::ssize(limits));
  for (size_t i = 0; i < limits.size(); ++i) {
    EXPECT_EQ(json[i]["name"], limits[i].name);
    EXPECT_EQ(json[i]["value"], limits[i].value);
    EXPECT_THAT(table, HasSubstr(limits[i].name + "  "));
    EXPECT_THAT(table, HasSubstr(limits[i].meaning + "\n"));
  }
}

}  // namespace
}  // namespace heddle::elastic
