// The credit of a connection over RDMA and the numbers of its send requests, against a model of the
// two ends that counts bytes, receives and requests one by one.
#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/transport/verbs/credit.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

constexpr size_t kRing = 1024;
constexpr size_t kStream = 50000;

TEST(StreamCreditTest, TheLastReceivesAreKeptForControl) {
  StreamCredit credit(kRing);
  EXPECT_FALSE(credit.MaySend(true));  // The peer has none yet.
  credit.SetPeer(10);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(credit.MaySend(false));
    credit.Send();
  }
  EXPECT_FALSE(credit.MaySend(false));
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(credit.MaySend(true));
    credit.Send();
  }
  EXPECT_FALSE(credit.MaySend(true));
  ASSERT_TRUE(credit.Take({.reposted = 9}, 0).ok());
  EXPECT_TRUE(credit.MaySend(false));
  credit.Send();
  EXPECT_FALSE(credit.MaySend(false));
}

TEST(StreamCreditTest, APeerThatTakesMoreThanItWasGivenIsRefused) {
  StreamCredit credit(kRing);
  credit.SetPeer(100);
  credit.Send();
  credit.Send();
  EXPECT_EQ(credit.Take({.consumed = 51}, 50).message(), "RDMA credit out of range");
  EXPECT_EQ(credit.Take({.reposted = 3}, 50).code(), StatusCode::kDataLoss);
  ASSERT_TRUE(credit.Take({.consumed = 50, .reposted = 2}, 50).ok());
  EXPECT_EQ(credit.peer_consumed(), 50u);
  EXPECT_EQ(credit.Take({.consumed = 49, .reposted = 2}, 50).code(), StatusCode::kDataLoss);
  EXPECT_EQ(credit.Take({.consumed = 50, .reposted = 1}, 50).code(), StatusCode::kDataLoss);
  EXPECT_EQ(credit.peer_consumed(), 50u);
}

TEST(StreamCreditTest, NoMoreArrivesThanTheRingHolds) {
  StreamCredit credit(kRing);
  ASSERT_TRUE(credit.Arrive(kRing).ok());
  EXPECT_TRUE(credit.Arrive(0).ok());
  EXPECT_EQ(credit.Arrive(1).message(), "more bytes than the RDMA ring holds");
  credit.Consume(10);
  EXPECT_EQ(credit.Arrive(11).code(), StatusCode::kDataLoss);
  EXPECT_EQ(credit.Arrive(UINT64_MAX).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(credit.Arrive(10).ok());
  EXPECT_EQ(credit.readable(), kRing);
  EXPECT_EQ(credit.consumed(), 10u);
}

TEST(StreamCreditTest, IsDueAtAQuarterOfTheRingOrOfTheReceives) {
  StreamCredit credit(kRing);
  ASSERT_TRUE(credit.Arrive(kRing).ok());
  credit.Consume(255);
  credit.Repost(63);
  EXPECT_FALSE(credit.Due());
  credit.Consume(1);
  EXPECT_TRUE(credit.Due());
  const ControlMessage message = credit.Return(7, ControlMessage::kEnd);
  EXPECT_EQ(message.consumed, 256u);
  EXPECT_EQ(message.reposted, 63u);
  EXPECT_EQ(message.arrived, 7u);
  EXPECT_EQ(message.flags, ControlMessage::kEnd);
  EXPECT_FALSE(credit.Due());
  credit.Repost(63);
  EXPECT_FALSE(credit.Due());
  credit.Repost(1);
  EXPECT_TRUE(credit.Due());
}

TEST(SendRequestsTest, OneInSixteenReportsOrOneInAnEighthOfTheRing) {
  SendRequests requests(kRing);
  std::vector<uint64_t> reported;
  for (int i = 0; i < 32; ++i) {
    const uint64_t number = requests.next();
    if (requests.Add({}, i == 3)) {
      reported.push_back(number);
    }
  }
  EXPECT_EQ(reported, (std::vector<uint64_t>{3, 19}));
  EXPECT_FALSE(requests.Add({.streamed = 100}, false));
  EXPECT_FALSE(requests.Add({.placed = 27}, false));
  EXPECT_TRUE(requests.Add({.streamed = 1}, false));
  EXPECT_FALSE(requests.Add({.streamed = 127}, false));
}

TEST(SendRequestsTest, ACompletionCompletesAllBefore) {
  SendRequests requests(kRing);
  requests.Add({.streamed = 600}, false);
  requests.Add({.placed = 1000}, false);
  requests.Add({.streamed = 100, .placed = 20}, false);
  EXPECT_EQ(requests.given().streamed, 700u);
  EXPECT_EQ(requests.StreamRoom(700), kRing - 700);
  EXPECT_EQ(requests.PlaceRoom(), kRing - 1020);
  requests.Complete(1);
  EXPECT_EQ(requests.done().streamed, 600u);
  EXPECT_EQ(requests.done().placed, 1000u);
  EXPECT_EQ(requests.StreamRoom(700), kRing - 100);  // Still needed here,
  EXPECT_EQ(requests.StreamRoom(30), kRing - 670);   // or not yet read there.
  EXPECT_EQ(requests.PlaceRoom(), kRing - 20);
}

TEST(SendRequestsTest, TheLastRequestsAreKeptForControl) {
  SendRequests requests(kRing);
  for (int i = 0; i < 119; ++i) {
    EXPECT_TRUE(requests.MayAdd(1, false));
    requests.Add({}, false);
  }
  EXPECT_TRUE(requests.MayAdd(1, false));
  EXPECT_FALSE(requests.MayAdd(2, false));
  EXPECT_EQ(requests.PlaceRoom(), kRing);
  requests.Add({}, false);
  EXPECT_FALSE(requests.MayAdd(1, false));
  EXPECT_EQ(requests.PlaceRoom(), 0u);
  EXPECT_TRUE(requests.MayAdd(8, true));
  EXPECT_FALSE(requests.MayAdd(9, true));
  requests.Complete(0);
  EXPECT_TRUE(requests.MayAdd(1, false));
}

/// One end of two, with what it has used in truth: counted one by one, without positions.
struct End {
  struct InFlight {
    uint64_t number = 0;
    bool reports = false;
    std::optional<ControlMessage>
        message;  ///< None: a write, whose bytes lie in the ring silently.
  };
  StreamCredit credit{kRing};
  SendRequests requests{kRing};
  std::deque<InFlight> sent;
  std::deque<uint64_t> completed;  ///< Reports that are not taken in yet.
  size_t receives = StreamCredit::kReceives;
  size_t used = 0;  ///< Receives that are not posted again yet.
  size_t in_ring = 0;
  size_t left = kStream;
  size_t read = 0;

  void Send(SendRequests::Bytes bytes, std::optional<ControlMessage> message) {
    const uint64_t number = requests.next();
    sent.push_back({number, requests.Add(bytes, false), message});
    ASSERT_LE(sent.size(), SendRequests::kDepth);
  }

  // A write and a message that announces it, as over iWARP.
  void Write(size_t most) {
    const size_t bytes = std::min({left, requests.StreamRoom(credit.peer_consumed()), most});
    if (bytes > 0 && requests.MayAdd(2, false) && credit.MaySend(false)) {
      left -= bytes;
      Send({.streamed = bytes}, std::nullopt);
      Send({}, credit.Return(static_cast<uint32_t>(bytes), 0));
    }
  }
  void CarryTo(End& peer) {
    const InFlight first = sent.front();
    sent.pop_front();
    if (first.reports) {
      completed.push_back(first.number);
    }
    if (first.message.has_value()) {
      ASSERT_GT(peer.receives, 0U);
      --peer.receives;
      ++peer.used;
      peer.in_ring += first.message->arrived;
      ASSERT_LE(peer.in_ring, kRing);
      ASSERT_TRUE(peer.credit.Take(*first.message, peer.requests.given().streamed).ok());
      ASSERT_TRUE(peer.credit.Arrive(first.message->arrived).ok());
    }
  }
  void Read(size_t most) {
    const size_t bytes = std::min(credit.readable(), most);
    credit.Consume(bytes);
    in_ring -= bytes;
    read += bytes;
  }
  void Poll() {
    for (; !completed.empty(); completed.pop_front()) {
      requests.Complete(completed.front());
    }
    credit.Repost(used);
    receives += std::exchange(used, 0);
    if (credit.Due() && requests.MayAdd(1, true) && credit.MaySend(true)) {
      Send({}, credit.Return(0, 0));
    }
  }
};

// Random steps of two ends: neither the peer's ring nor its receives nor the send queue run over,
// and everything arrives, however small the pieces.
TEST(StreamCreditTest, TwoEndsNeitherOverrunNorWaitForEachOther) {
  Random random(testing::TestSeed());
  for (size_t most = 1; most <= 2 * kRing; most *= 4) {
    std::array<End, 2> ends;
    for (End& end : ends) {
      end.credit.SetPeer(StreamCredit::kReceives);
    }
    const auto done = [&] { return ends[0].read == kStream && ends[1].read == kStream; };
    for (int step = 0; step < 10'000'000 && !done() && !::testing::Test::HasFailure(); ++step) {
      const size_t turn = random.Below(2);
      End& own = ends[turn];
      switch (random.Below(4)) {
        case 0:
          own.Write(1 + random.Below(most));
          break;
        case 1:
          if (!own.sent.empty()) {
            own.CarryTo(ends[1 - turn]);
          }
          break;
        case 2:
          own.Read(1 + random.Below(most));
          break;
        default:
          own.Poll();
      }
    }
    EXPECT_TRUE(done()) << most;
  }
}

}  // namespace
}  // namespace heddle::comm
