// The emulated link, priorities and measuring.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "comm/stream/token_bucket.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;

TEST(TokenBucketTest, LongRunRateIsExactWhateverThePiecesAndLateWakeUps) {
  for (const Duration late : {Duration(0), Duration(milliseconds(1)), Duration(milliseconds(30))}) {
    TokenBucket bucket;
    Time now{};
    bucket.SetRate(1e8, now);
    bucket.AddWaiting(TrafficClass::kBulk, 1, now);
    const Time start = now;
    int64_t sent = 0;
    while (now - start < std::chrono::seconds(2)) {
      const Time ready = bucket.ReadyAt(TrafficClass::kBulk, now);
      if (ready > now) {
        now = ready + late;
        continue;
      }
      const size_t piece = bucket.PieceBytes(1 << 18);
      bucket.Charge(piece, now);
      sent += static_cast<int64_t>(piece);
    }
    EXPECT_NEAR(static_cast<double>(sent) / Seconds(now - start), 1e8, 2e6) << late.count();
  }
}

TEST(TokenBucketTest, AnIdleLinkSavesNextToNothing) {
  TokenBucket bucket;
  Time now{};
  bucket.SetRate(1e8, now);
  bucket.Charge(1000000, now);
  EXPECT_EQ(bucket.ReadyAt(TrafficClass::kBulk, now), now + milliseconds(10));
  now += std::chrono::seconds(10);
  bucket.Charge(1000000, now);  // Half a millisecond of it was saved.
  EXPECT_EQ(bucket.ReadyAt(TrafficClass::kBulk, now), now + std::chrono::microseconds(9500));
}

TEST(TokenBucketTest, NoRateMeansNoLimit) {
  TokenBucket bucket;
  bucket.SetRate(10, Time{});
  bucket.Charge(1000, Time{});
  EXPECT_GT(bucket.ReadyAt(TrafficClass::kBulk, Time{}), Time{});
  bucket.SetRate(0, Time{});
  EXPECT_EQ(bucket.ReadyAt(TrafficClass::kBulk, Time{}), Time{});
  EXPECT_EQ(bucket.PieceBytes(12345), 12345U);
}

class LinkTest : public testing::TestWithParam<Media> {};

TEST_P(LinkTest, TrafficKeepsTheEmulatedRateInEachDirection) {
  const double rate = 40e6 / MachineSlowdown();
  constexpr size_t kBytes = 6 << 20;
  Cluster cluster(2, GetParam(), rate);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    double best = 1e9;
    // A busy machine may delay some of them.
    for (uint64_t round = 0; round < 20 && best > 1.1; ++round) {
      const Bytes outgoing(kBytes);
      Bytes incoming(kBytes);
      ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = round, .deadline = {}}).ok());
      const Time start = Now();
      const Work receive = communicator.Recv(1 - rank, round, incoming, false);
      const Work send = communicator.Send(1 - rank, round, outgoing, false);
      ASSERT_TRUE(send.Wait().ok());
      ASSERT_TRUE(receive.Wait().ok());
      std::vector<double> ratio{Seconds(receive.finished_at() - start) /
                                (static_cast<double>(kBytes) / rate)};
      EXPECT_GE(ratio[0], 0.9);
      // Both must agree on whether to go on.
      ASSERT_TRUE(communicator
                      .AllReduce(RawOf(ratio), DType::kF64, ReduceOp::kMax,
                                 {.group = {}, .tag = round, .deadline = {}})
                      .ok());
      best = std::min(best, ratio[0]);
    }
    EXPECT_LE(best, 1.1);
  });
}

TEST_P(LinkTest, UrgentOvertakesBulk) {
  Cluster cluster(2, GetParam(), 50e6 / MachineSlowdown());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    Bytes bulk(8 << 20);
    Bytes urgent(1000);
    if (rank == 0) {
      const Work first = communicator.Send(1, 1, bulk, false);
      ASSERT_TRUE(communicator.Barrier({}).ok());  // Bulk is under way: both sides know of it.
      const Work second = communicator.Send(1, 2, urgent, true);
      ASSERT_TRUE(second.Wait().ok());
      ASSERT_TRUE(first.Wait().ok());
      EXPECT_LT(second.finished_at(), first.finished_at());
    } else {
      const Work first = communicator.Recv(0, 1, bulk, false);
      const Work second = communicator.Recv(0, 2, urgent, true);
      ASSERT_TRUE(communicator.Barrier({}).ok());
      const Time start = Now();
      ASSERT_TRUE(second.Wait().ok());
      ASSERT_TRUE(first.Wait().ok());
      EXPECT_LT(second.finished_at() - start, milliseconds(60) * kSlowdown) << "bulk takes 168 ms";
      EXPECT_LT(second.finished_at(), first.finished_at());
    }
  });
}

TEST_P(LinkTest, MeasuresWhatTheLinkGives) {
  Cluster cluster(2, GetParam());
  const double rate = 20e6 / MachineSlowdown();
  for (int rank = 0; rank < 2; ++rank) {
    cluster.endpoint(rank).SetLinkRate(rate);
  }
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    // A measurement that other work on the machine disturbed is taken again, by both alike.
    constexpr uint64_t kRounds = 12;
    double best_error = 1;
    double best_latency = 1;
    float worse_error = 1;
    for (uint64_t round = 0; round < kRounds && worse_error >= 0.099F; ++round) {
      const auto link = cluster.endpoint(rank).MeasureLink(communicator, 1 - rank, round,
                                                           After(std::chrono::seconds(10)));
      ASSERT_TRUE(link.ok()) << link.status().ToString();
      EXPECT_EQ(link->transport, TransportOf(GetParam(), 0, 1));
      EXPECT_GT(link->latency_seconds, 0);
      best_latency = std::min(best_latency, link->latency_seconds);
      best_error = std::min(best_error, std::abs(link->bytes_per_second / rate - 1));
      worse_error = static_cast<float>(best_error);
      ASSERT_TRUE(communicator
                      .AllReduce(std::as_writable_bytes(std::span(&worse_error, 1)), DType::kF32,
                                 ReduceOp::kMax, {.group = {}, .tag = 100 + round, .deadline = {}})
                      .ok());
    }
    EXPECT_LT(best_error, 0.1);
    EXPECT_LT(best_latency, 0.02 * kSlowdown);
    ASSERT_TRUE(communicator.Barrier({}).ok());
    cluster.endpoint(rank).SetLinkRate(0);
    ASSERT_TRUE(communicator.Barrier({}).ok());
    double best_rate = 0;
    for (uint64_t round = 0; round < kAttempts; ++round) {
      const auto fast = cluster.endpoint(rank).MeasureLink(communicator, 1 - rank, kRounds + round,
                                                           After(std::chrono::seconds(10)));
      ASSERT_TRUE(fast.ok());
      best_rate = std::max(best_rate, fast->bytes_per_second);
    }
    EXPECT_GT(best_rate, 100e6 / kSlowdown);
  });
}

INSTANTIATE_TEST_SUITE_P(Media,
                         LinkTest,
                         testing::ValuesIn(MediaHere({})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
