// Point to point and the tree collectives over every medium.
#include "comm/communicator.h"

#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

class CommunicatorTest : public testing::TestWithParam<Media> {};

Bytes Pattern(size_t size, uint64_t seed) {
  Bytes bytes(size);
  Random random(seed);
  uint64_t word = random.Next();
  for (auto& byte : bytes) {  // A cheap generator: xorshift64.
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    byte = static_cast<std::byte>(word & 0xFF);
  }
  return bytes;
}

TEST_P(CommunicatorTest, MessagesArriveWholeWhateverTheirSizeAndOrder) {
  Cluster cluster(3, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    const std::vector<size_t> sizes{0, 1, 7, 4096, 65536, 65537, 300001, 4 << 20};
    std::vector<Bytes> outgoing;
    std::vector<Bytes> incoming;
    std::vector<Work> works;
    for (int peer = 0; peer < 3; ++peer) {
      for (size_t i = 0; peer != rank && i < sizes.size(); ++i) {
        outgoing.push_back(Pattern(sizes[i], static_cast<uint64_t>(rank * 100 + peer * 10) + i));
        incoming.emplace_back(sizes[i]);
      }
    }
    size_t at = 0;
    for (int peer = 0; peer < 3; ++peer) {
      for (size_t i = 0; peer != rank && i < sizes.size(); ++i, ++at) {
        // Half of the receives come before the sends, and in the opposite order.
        if (rank % 2 == 0) {
          works.push_back(communicator.Send(peer, i, outgoing[at], i % 2 == 0));
        } else {
          const uint64_t tag = sizes.size() - 1 - i;
          works.push_back(communicator.Recv(peer, tag, incoming[at + tag - i], tag % 2 == 0));
        }
      }
    }
    at = 0;
    for (int peer = 0; peer < 3; ++peer) {
      for (size_t i = 0; peer != rank && i < sizes.size(); ++i, ++at) {
        if (rank % 2 == 0) {
          works.push_back(communicator.Recv(peer, i, incoming[at], i % 2 == 0));
        } else {
          works.push_back(communicator.Send(peer, i, outgoing[at], i % 2 == 0));
        }
      }
    }
    for (const Work& work : works) {
      const Status status = work.Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    at = 0;
    for (int peer = 0; peer < 3; ++peer) {
      for (size_t i = 0; peer != rank && i < sizes.size(); ++i, ++at) {
        EXPECT_EQ(incoming[at],
                  Pattern(sizes[i], static_cast<uint64_t>(peer * 100 + rank * 10) + i));
      }
    }
  });
}

// One of two threads that wait moves the messages of both; what it reads beyond its own must reach
// the other at once, though nothing follows on the connection until both have answered.
TEST_P(CommunicatorTest, ThreadsThatWaitAtOnceAreAllServed) {
  constexpr int kRounds = 400;
  static constexpr std::array<uint64_t, 2> kTags{1, 2};
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    const auto answer = [&communicator](uint64_t tag) {
      Bytes in(16);
      for (int round = 0; round < kRounds; ++round) {
        Status status = communicator.Recv(1, tag, in, true).Wait(After(kAmple));
        ASSERT_TRUE(status.ok()) << round << ": " << status.ToString();
        status = communicator.Send(1, tag, in, true).Wait();
        ASSERT_TRUE(status.ok()) << round << ": " << status.ToString();
      }
    };
    if (rank == 0) {
      std::thread other([&] { answer(kTags[1]); });
      answer(kTags[0]);
      other.join();
      return;
    }
    const Bytes out(16);
    std::array<Bytes, kTags.size()> in{Bytes(16), Bytes(16)};
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Work> works;
      for (size_t i = 0; i < kTags.size(); ++i) {
        works.push_back(communicator.Recv(0, kTags[i], in[i], true));
      }
      for (const uint64_t tag : kTags) {
        works.push_back(communicator.Send(0, tag, out, true));
      }
      for (const Work& work : works) {
        const Status status = work.Wait(After(kAmple));
        ASSERT_TRUE(status.ok()) << round << ": " << status.ToString();
      }
    }
  });
}

// Bulk that nobody takes until the urgent message has come, and more of it than may wait: small
// messages that fill the receiver's window, and as many that ask for room as may ask.
TEST_P(CommunicatorTest, AnUrgentMessagePassesBulkThatCannotGoOn) {
  constexpr size_t kBulkBytes = 8 << 10;
  constexpr size_t kMessages = (1 << 20) / kBulkBytes + 1024 + 10;
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    const Bytes activation = Pattern(8192, 1);
    const Bytes bulk = Pattern(kBulkBytes, 2);
    std::vector<Bytes> arrived(rank == 0 ? 0 : kMessages, Bytes(kBulkBytes));
    std::vector<Work> works;
    if (rank == 0) {
      for (size_t i = 0; i < kMessages; ++i) {
        works.push_back(communicator.Send(1, 1, bulk, false));
      }
      works.push_back(communicator.Send(1, 2, activation, true));
    } else {
      Bytes urgent(activation.size());
      const Status status = communicator.Recv(0, 2, urgent, true).Wait(After(kAmple));
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(urgent, activation);
      for (Bytes& one : arrived) {
        works.push_back(communicator.Recv(0, 1, one, false));
      }
    }
    for (const Work& work : works) {
      ASSERT_TRUE(work.Wait().ok());
    }
    EXPECT_TRUE(
        std::all_of(arrived.begin(), arrived.end(), [&](const Bytes& one) { return one == bulk; }));
  });
}

TEST_P(CommunicatorTest, ReportsTheTransportOfEachPair) {
  Cluster cluster(3, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(communicator.transport(peer),
                peer == rank ? "self" : TransportOf(GetParam(), rank, peer));
    }
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_P(CommunicatorTest, AllGatherBytesGivesEveryRecordInRankOrder) {
  for (int size = 1; size <= 6; ++size) {
    Cluster cluster(size, GetParam());
    cluster.Run(1, [size](int rank, Communicator& communicator) {
      for (const size_t scale : {size_t{0}, size_t{1}, size_t{400}, size_t{100000}}) {
        const Bytes mine = Pattern(scale * static_cast<size_t>(rank), static_cast<uint64_t>(rank));
        const auto all =
            communicator.AllGatherBytes(mine, {.group = {}, .tag = scale, .deadline = {}});
        ASSERT_TRUE(all.ok()) << all.status().ToString();
        ASSERT_EQ(all->size(), static_cast<size_t>(size));
        for (int other = 0; other < size; ++other) {
          EXPECT_EQ((*all)[static_cast<size_t>(other)],
                    Pattern(scale * static_cast<size_t>(other), static_cast<uint64_t>(other)));
        }
      }
      const Status barrier = communicator.Barrier({});
      ASSERT_TRUE(barrier.ok()) << barrier.ToString();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Media,
                         CommunicatorTest,
                         testing::ValuesIn(MediaHere({.mixed = true, .tls = true})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
