// Which transports a pair is tried over, in which order, and what is counted and said of those that
// did not lead there.
#include <algorithm>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/transport/transport.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;
using testing::Not;

using Counted = std::vector<std::pair<std::string, double>>;

/// Samples of a family, the transport's and reason's: as text, and the value. Counters that stand
/// at 0 are left out, unless `all`.
Counted Samples(metrics::Registry& registry, const std::string& name, bool all = false) {
  Counted samples;
  for (const auto& family : registry.Collect()) {
    for (const auto& sample : family.samples) {
      const bool counts = all || family.kind != metrics::Registry::Kind::kCounter;
      if (family.name == name && (counts || sample.value > 0)) {
        samples.emplace_back(sample.labels.at("transport") + " " + sample.labels.at("reason"),
                             sample.value);
      }
    }
  }
  std::ranges::sort(samples);
  return samples;
}

/// Connects both, rank 0 with what `change` makes of its options; what rank 0's came to.
Status Connect(Cluster& cluster,
               int64_t generation,
               const std::function<void(GroupOptions&)>& change) {
  auto other = std::async(std::launch::async, [&] {
    auto group = cluster.endpoint(1).Connect(cluster.Options(1, generation), After(kAmple));
    return group.ok() ? (*group)->Barrier({}) : group.status();
  });
  GroupOptions options = cluster.Options(0, generation);
  change(options);
  auto group = cluster.endpoint(0).Connect(options, After(kAmple));
  const Status status = group.ok() ? (*group)->Barrier({}) : group.status();
  if (!status.ok()) {
    cluster.endpoint(1).Fence(generation + 1);
  }
  EXPECT_EQ(other.get().ok(), status.ok());
  return status;
}

TEST(DiallingTest, CountersBeginAtZero) {
  Cluster cluster(2, Media::kShm);
  Counted expected;
  for (const char* const transport : {"shm", "tcp"}) {
    for (const StatusCode reason : {StatusCode::kUnavailable, StatusCode::kDeadlineExceeded}) {
      expected.emplace_back(fmt::format("{} {}", transport, StatusCodeName(reason)), 0);
    }
  }
  std::ranges::sort(expected);
  EXPECT_EQ(Samples(cluster.registry(0), "heddle_comm_fallbacks_total", /*all=*/true), expected);
}

void NobodyAtShm(GroupOptions& options) {
  AddressParts parts = *ParseAddress(options.members[1].address);
  parts["shm"] = "nobody-listens-here";
  options.members[1].address = FormatAddress(parts);
}

TEST(DiallingTest, WhatDoesNotLeadThereIsCountedForEachConnectionAndSaidOnce) {
  Cluster cluster(2, Media::kShm);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Connect(cluster, 1, NobodyAtShm).ok());
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("shm is not used with worker-1: "));
  EXPECT_EQ(log.find("shm is not used"), log.rfind("shm is not used")) << log;
  EXPECT_EQ(Samples(cluster.registry(0), "heddle_comm_fallbacks_total"),
            (Counted{{"shm " + std::string(StatusCodeName(StatusCode::kUnavailable)),
                      static_cast<double>(kTrafficClasses)}}));
  EXPECT_TRUE(Samples(cluster.registry(1), "heddle_comm_fallbacks_total").empty())
      << "it does not dial";
  for (const int rank : {0, 1}) {
    EXPECT_EQ(Samples(cluster.registry(rank), "heddle_comm_pair_transport"),
              (Counted{{"tcp fallback", 1}}));
  }
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Connect(cluster, 2, NobodyAtShm).ok());
  log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, Not(HasSubstr("shm is not used"))) << "every generation would say the same";
  EXPECT_TRUE(Connect(cluster, 3, [](GroupOptions&) {}).ok());
  for (const int rank : {0, 1}) {
    EXPECT_EQ(Samples(cluster.registry(rank), "heddle_comm_pair_transport"),
              (Counted{{"shm first", 1}, {"tcp fallback", 0}}));
  }
}

// Where the last of them fails, its reason is the connect's.
TEST(DiallingTest, TheLastOnesFailureIsSaidWithThePeersName) {
  Cluster cluster(2, Media::kShm);
  const Status status = Connect(cluster, 1, [](GroupOptions& options) {
    NobodyAtShm(options);
    options.transports = {"shm"};
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("connecting to worker-1: "));
  EXPECT_TRUE(Samples(cluster.registry(0), "heddle_comm_fallbacks_total").empty());
}

// A peer that is stale or has another secret is that over every transport.
TEST(DiallingTest, ARefusalOfThePeerIsNotTriedElsewhere) {
  Cluster cluster(2, Media::kShm);
  cluster.endpoint(1).Fence(5);
  EXPECT_EQ(cluster.endpoint(0).Connect(cluster.Options(0, 3), After(kAmple)).status().code(),
            StatusCode::kAborted);
  ASSERT_TRUE(cluster.Configure(0, [](EndpointConfig& config) { config.secret = "guess"; }).ok());
  EXPECT_EQ(cluster.endpoint(0).Connect(cluster.Options(0, 6), After(kAmple)).status().code(),
            StatusCode::kUnauthenticated);
  EXPECT_TRUE(Samples(cluster.registry(0), "heddle_comm_fallbacks_total").empty());
}

TEST(DiallingTest, EachObjectionIsSaid) {
  Cluster cluster(2, Media::kTcp);
  GroupOptions options = cluster.Options(0, 1);
  options.transports = {"shm", "tcp"};
  AddressParts parts = *ParseAddress(options.members[1].address);
  parts.erase("tcp");
  options.members[1].address = FormatAddress(parts);
  Status status = cluster.endpoint(0).Connect(options, After(kAmple)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "connecting to worker-1: no transport leads there: shm (switched off), "
            "tcp (cannot reach it)");
  options.generation = 2;
  options.members[1].address = "the moon";
  status = cluster.endpoint(0).Connect(options, After(kAmple)).status();
  EXPECT_EQ(status.message(), "connecting to worker-1: 'the moon' is not an endpoint's address");
}

// Who is dialled looks, too, where the group has a list of its own: it would wait in vain.
TEST(DiallingTest, WhoIsDialledSaysThatNoTransportOfTheListLeadsThere) {
  Cluster cluster(2, Media::kTcp);
  GroupOptions options = cluster.Options(1, 1);
  options.transports = {"shm"};
  const Status status = cluster.endpoint(1).Connect(options, After(kAmple)).status();
  EXPECT_EQ(status.message(),
            "connecting to worker-0: no transport leads there: shm (switched off)");
}

}  // namespace
}  // namespace heddle::comm
