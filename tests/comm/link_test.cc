// The emulated link, priorities and measuring.
#include <thread>

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

// How exactly it is kept, TokenBucketTest and MeteredStreamTest say, in a time of their own: here a
// busy machine may take any time longer.
TEST_P(LinkTest, NoTrafficIsFasterThanTheEmulatedLink) {
  constexpr double kRate = 40e6;
  constexpr size_t kBytes = 6 << 20;
  Cluster cluster(2, GetParam(), kRate);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const Bytes outgoing(kBytes);
    Bytes incoming(kBytes);
    const Time start = Now();
    const Work receive = communicator.Recv(1 - rank, 1, incoming, false);
    const Work send = communicator.Send(1 - rank, 1, outgoing, false);
    ASSERT_TRUE(send.Wait().ok());
    ASSERT_TRUE(receive.Wait().ok());
    EXPECT_GE(Seconds(receive.finished_at() - start), 0.9 * kBytes / kRate);
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

// On a link that carries the bulk in two minutes, unless its limit is lifted meanwhile.
TEST_P(LinkTest, UrgentOvertakesBulk) {
  constexpr double kRate = 64e3;
  Cluster cluster(2, GetParam(), kRate);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    Bytes bulk(8 << 20);
    Bytes urgent(1000);
    const int peer = 1 - rank;
    const auto move = [&](uint64_t tag, Bytes& bytes, bool is_urgent) {
      return rank == 0 ? communicator.Send(peer, tag, bytes, is_urgent)
                       : communicator.Recv(peer, tag, bytes, is_urgent);
    };
    const Work first = move(1, bulk, false);
    // Bulk is under way: more than what announces it has been sent.
    for (const Deadline deadline = After(kAmple);
         rank == 0 && communicator.BytesSent()[1] < 8192;) {
      ASSERT_LT(Now(), deadline);
      std::this_thread::yield();
    }
    const Work second = move(2, urgent, true);
    const Status status = second.Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_FALSE(first.Done());
    ASSERT_TRUE(communicator.Barrier({}).ok());  // Both have looked.
    cluster.endpoint(rank).SetLinkRate(0);
    ASSERT_TRUE(first.Wait().ok());
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

// The arithmetic is MeasureTest's. A busy machine makes a link seem slower, and a latency that was
// measured too high can no more than double its rate.
TEST_P(LinkTest, MeasuresNoMoreThanTheLinkGives) {
  constexpr double kRate = 1e6;
  Cluster cluster(2, GetParam(), kRate);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    for (const bool limited : {true, false}) {
      const auto link = cluster.endpoint(rank).MeasureLink(communicator, 1 - rank, limited ? 1 : 2,
                                                           After(kAmple));
      ASSERT_TRUE(link.ok()) << link.status().ToString();
      EXPECT_EQ(link->transport, TransportOf(GetParam(), 0, 1));
      EXPECT_GT(link->latency_seconds, 0);
      EXPECT_GT(link->bytes_per_second, 0);
      if (limited) {
        EXPECT_LT(link->bytes_per_second, 3 * kRate);
      }
      ASSERT_TRUE(communicator.Barrier({}).ok());
      cluster.endpoint(rank).SetLinkRate(0);
      ASSERT_TRUE(communicator.Barrier({}).ok());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Media,
                         LinkTest,
                         testing::ValuesIn(MediaHere({})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
