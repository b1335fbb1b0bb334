/// \file
/// Clusters as text: the very text, and for everything that may be wrong with one the message that
/// says what it is.
#include "planner/predictor/cluster.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

/// Two workers and their two links; nothing is alike.
ClusterProfile Pair() {
  ClusterProfile cluster = ClusterOf({1, 0.5}, 1000, 0.25);
  cluster.workers[0].bytes_per_second = 8;
  cluster.workers[0].flops_per_second = 4;
  cluster.workers[1].bytes_per_second = 16;
  cluster.workers[1].flops_per_second = 2;
  cluster.workers[1].instruction_seconds = 0.5;
  cluster.workers[1].memory_bytes = 77;
  cluster.workers[1].seconds["fold"] = 0.125;
  cluster.links.At(1, 0) = {.latency_seconds = 0.5, .bytes_per_second = 2000, .transport = "shm"};
  return cluster;
}

constexpr std::string_view kText = R"({
 "links": [
  {
   "bytes_per_second": 1000.0,
   "from": "w0",
   "latency_seconds": 0.25,
   "to": "w1",
   "transport": "tcp"
  },
  {
   "bytes_per_second": 2000.0,
   "from": "w1",
   "latency_seconds": 0.5,
   "to": "w0",
   "transport": "shm"
  }
 ],
 "workers": [
  {
   "bytes_per_second": 8.0,
   "flops_per_second": 4.0,
   "instruction_seconds": 0.0,
   "memory_bytes": 0,
   "seconds": {},
   "worker": "w0"
  },
  {
   "bytes_per_second": 16.0,
   "flops_per_second": 2.0,
   "instruction_seconds": 0.5,
   "memory_bytes": 77,
   "seconds": {
    "fold": 0.125
   },
   "worker": "w1"
  }
 ]
})";

TEST(ClusterTextTest, IsOneEntryALineAndReadBackAsItWas) {
  EXPECT_EQ(ClusterToJson(Pair()), kText);
  const Result<ClusterProfile> read = ClusterFromJson(kText);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->workers.size(), 2U);
  EXPECT_EQ(read->workers[1].worker, "w1");
  EXPECT_EQ(read->workers[1].memory_bytes, 77);
  EXPECT_EQ(read->links.size(), 2);
  EXPECT_EQ(read->links.At(0, 1).latency_seconds, 0.25);
  EXPECT_EQ(read->links.At(1, 0).bytes_per_second, 2000);
  EXPECT_EQ(read->links.At(1, 0).transport, "shm");
}

TEST(ClusterTextTest, OneWorkerAndNoneNeedNoLinks) {
  const std::string one = ClusterToJson(ClusterOf({1}));
  EXPECT_EQ(one.substr(0, one.find('\n', 3)), "{\n \"links\": [],");
  EXPECT_EQ(ClusterFromJson(one)->workers.size(), 1U);
  EXPECT_EQ(ClusterFromJson(R"({"workers": [], "links": []})")->workers.size(), 0U);
}

struct Fault {
  std::string from;  ///< Its first place in the text …
  std::string to;    ///< … is replaced by this.
  std::string message;
};

constexpr const char* kSecondLink = R"({
   "bytes_per_second": 2000.0,
   "from": "w1",
   "latency_seconds": 0.5,
   "to": "w0",
   "transport": "shm"
  })";

TEST(ClusterTextTest, EveryFaultIsNamed) {
  const std::string second = kSecondLink;
  const std::vector<Fault> faults = {
      {"{\n \"links\"", "[\n \"links\"", "cluster: not valid JSON"},
      {std::string(kText), "[1]", "cluster: expected an object, got array"},
      {std::string(kText), "3", "cluster: expected an object, got number"},
      {"\"links\"", "\"linx\"", "cluster: unknown key 'linx'"},
      {"\"links\": [", "\"more\": 1, \"links\": [", "cluster: unknown key 'more'"},
      {std::string(kText), R"({"links": []})", "cluster: missing key 'workers'"},
      {std::string(kText), R"({"workers": []})", "cluster: missing key 'links'"},
      {std::string(kText), R"({"workers": [], "links": {}})",
       "cluster: 'workers' and 'links' must be lists"},
      {std::string(kText), R"({"workers": {}, "links": []})",
       "cluster: 'workers' and 'links' must be lists"},
      {std::string(kText), R"({"workers": [], "links": [7]})",
       "cluster.links[0]: expected an object, got number"},
      {"\"worker\": \"w1\"", "\"worker\": \"w0\"", "cluster.workers: a name is given twice"},
      {",\n  " + second, "", "cluster.links: expected 2 links for 2 workers, got 1"},
      {second, second + ", " + second, "cluster.links: expected 2 links for 2 workers, got 3"},
      {second, "7", "cluster.links[1]: expected an object, got number"},
      {"\"to\": \"w0\"", "\"two\": \"w0\"", "cluster.links[1]: unknown key 'two'"},
      {"\"to\": \"w0\",", "", "cluster.links[1]: missing key 'to'"},
      {"\"from\": \"w0\"", "\"from\": \"w9\"", "cluster.links[0].from: no worker 'w9'"},
      {"\"to\": \"w1\"", "\"to\": \"w9\"", "cluster.links[0].to: no worker 'w9'"},
      {"\"from\": \"w0\"", "\"from\": 5",
       "cluster.links[0].from: expected a worker's name, got number"},
      {"\"to\": \"w1\"", "\"to\": \"w0\"",
       "cluster.links[0]: a link from a worker to itself, or given twice"},
      {"\"from\": \"w1\",\n   \"latency_seconds\": 0.5,\n   \"to\": \"w0\"",
       "\"from\": \"w0\",\n   \"latency_seconds\": 0.5,\n   \"to\": \"w1\"",
       "cluster.links[1]: a link from a worker to itself, or given twice"},
      {"\"latency_seconds\": 0.25", "\"latency_seconds\": \"soon\"",
       "cluster.links[0].latency_seconds: expected a number, got string"},
      {"\"bytes_per_second\": 2000.0", "\"bytes_per_second\": null",
       "cluster.links[1].bytes_per_second: expected a number, got null"},
      {"\"transport\": \"shm\"", "\"transport\": 3",
       "cluster.links[1].transport: expected text, got number"},
      {"\"bytes_per_second\": 2000.0", "\"bytes_per_second\": 0",
       "link w1 -> w0: latency 0.5 s and 0 bytes/s are not usable"},
      {"\"latency_seconds\": 0.25", "\"latency_seconds\": -1",
       "link w0 -> w1: latency -1 s and 1000 bytes/s are not usable"},
  };
  for (const Fault& fault : faults) {
    std::string broken(kText);
    const size_t place = broken.find(fault.from);
    ASSERT_NE(place, std::string::npos) << fault.from;
    broken.replace(place, fault.from.size(), fault.to);
    const Status status = ClusterFromJson(broken).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << fault.message;
    EXPECT_EQ(status.message(), fault.message);
  }
  std::string broken(kText);
  broken.replace(broken.find("\"flops_per_second\": 2.0,"), 24, "");
  const Status status = ClusterFromJson(broken).status();
  EXPECT_EQ(status.message().rfind("cluster.workers[1]", 0), 0U) << status.message();
}

TEST(ClusterTextTest, WhatIsWrongWithAClusterIsNamed) {
  const double endless = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::function<void(ClusterProfile&)>, std::string>> faults = {
      {[](auto& c) { c.links = comm::LinkTable(3); }, "cluster has 2 workers but links for 3"},
      {[](auto& c) { c.workers[1].worker = ""; }, "worker name '' is empty or used twice"},
      {[](auto& c) { c.workers[1].worker = "w0"; }, "worker name 'w0' is empty or used twice"},
      {[&](auto& c) { c.workers[0].flops_per_second = endless; },
       "profile of worker 'w0' holds a negative or infinite value"},
      {[](auto& c) { c.workers[0].bytes_per_second = -1; },
       "profile of worker 'w0' holds a negative or infinite value"},
      {[](auto& c) { c.workers[0].instruction_seconds = -1; },
       "profile of worker 'w0' holds a negative or infinite value"},
      {[&](auto& c) {
         c.workers[1].seconds = {{"copy", -1}, {"fold", 1}};  // The good one comes last.
       },
       "profile of worker 'w1' holds a negative or infinite value"},
      {[&](auto& c) { c.links.At(1, 0).latency_seconds = endless; },
       "link w1 -> w0: latency inf s and 2000 bytes/s are not usable"},
      {[](auto& c) { c.links.At(0, 1).bytes_per_second = -5; },
       "link w0 -> w1: latency 0.25 s and -5 bytes/s are not usable"},
  };
  for (const auto& [fault, message] : faults) {
    ClusterProfile cluster = Pair();
    fault(cluster);
    EXPECT_EQ(ValidateCluster(cluster).message(), message);
  }
  ClusterProfile idle = Pair();
  idle.workers[0].flops_per_second = idle.workers[0].bytes_per_second = 0;  // Nothing measured.
  idle.links.At(0, 1).bytes_per_second = 1e-9;
  EXPECT_TRUE(ValidateCluster(idle).ok());
}

TEST(ClusterTextTest, WhoCannotBeSelectedIsNamed) {
  const std::vector<std::string> stranger = {"w1", "w7"};
  EXPECT_EQ(SelectWorkers(Pair(), stranger).status().message(), "worker 'w7' has no profile");
  const std::vector<std::string> twice = {"w1", "w0", "w1"};
  EXPECT_EQ(SelectWorkers(Pair(), twice).status().message(), "worker 'w1' is named twice");
}

}  // namespace
}  // namespace heddle::planner
