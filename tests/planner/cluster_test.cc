/// \file
/// For everything that may be wrong with a cluster, the message that says what it is.
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

TEST(ClusterTest, WhatIsWrongWithAClusterIsNamed) {
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

TEST(ClusterTest, WhoCannotBeSelectedIsNamed) {
  const std::vector<std::string> stranger = {"w1", "w7"};
  EXPECT_EQ(SelectWorkers(Pair(), stranger).status().message(), "worker 'w7' has no profile");
  const std::vector<std::string> twice = {"w1", "w0", "w1"};
  EXPECT_EQ(SelectWorkers(Pair(), twice).status().message(), "worker 'w1' is named twice");
}

}  // namespace
}  // namespace heddle::planner
