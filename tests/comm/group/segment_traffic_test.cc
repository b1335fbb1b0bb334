// What goes through memory that all members share, counted to the byte: what a message would have
// carried, and nothing besides. So the counts also say which way a call took: one by messages has
// frames, and small ones are counted together.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

constexpr int64_t kElement = 4;

/// Beginning at cache lines, as all slices of what members share.
int64_t SliceOf(int64_t bytes, int members, int member) {
  const int64_t each = ((bytes + members - 1) / members + 63) / 64 * 64;
  return std::min(bytes, (member + 1) * each) - std::min(bytes, member * each);
}

double Received(metrics::Registry& registry) {
  double bytes = 0;
  for (const auto& family : registry.Collect()) {
    for (const auto& sample : family.samples) {
      bytes += family.name == "heddle_comm_received_bytes_total" ? sample.value : 0;
    }
  }
  return bytes;
}

/// Of one member, which waits without telling the others: that would be bytes, too.
class Member {
 public:
  Member(Cluster& cluster, int own, std::unique_ptr<Communicator> connected)
      : rank(own),
        size(cluster.size()),
        communicator(std::move(connected)),
        cluster_(cluster) {}

  using Bytes64 = std::function<int64_t(int peer)>;
  /// Runs a call and compares what it sent to each peer, and got from all.
  void Expect(const std::string& what,
              const std::function<Status(const CollectiveOptions&)>& call,
              const Bytes64& sent,
              const Bytes64& received) {
    const std::vector<int64_t> before = communicator->BytesSent();
    const double got_before = Received(cluster_.registry(rank));
    CollectiveOptions options;
    options.tag = ++tag_;
    const Status status = call(options);
    ASSERT_TRUE(status.ok()) << what << ": " << status.ToString();
    const std::vector<int64_t> after = communicator->BytesSent();
    int64_t from_all = 0;
    for (int peer = 0; peer < size; ++peer) {
      const auto i = static_cast<size_t>(peer);
      if (peer != rank) {
        EXPECT_EQ(after[i] - before[i], sent(peer)) << what << ", " << rank << " to " << peer;
        from_all += received(peer);
      }
    }
    EXPECT_EQ(Received(cluster_.registry(rank)) - got_before, static_cast<double>(from_all))
        << what << ", at " << rank;
    // Nobody begins what follows before all have looked.
    options.tag = ++tag_;
    ASSERT_TRUE(communicator->Barrier(options).ok());
  }
  SharedBuffer Shared(int64_t bytes) const {
    return *cluster_.endpoint(rank).AllocateShared(static_cast<size_t>(bytes));
  }

  const int rank;
  const int size;
  const std::unique_ptr<Communicator> communicator;

 private:
  Cluster& cluster_;
  uint64_t tag_ = 100;
};

void Together(int size, const std::function<void(Member&)>& body) {
  Cluster cluster(size, Media::kShm);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = cluster.Options(rank, 1);
      options.diagnose_calls = false;
      auto made = cluster.endpoint(rank).Connect(options, After(std::chrono::minutes(2)));
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      ASSERT_TRUE((*made)->Barrier({}).ok());  // The members share memory from here on.
      Member member(cluster, rank, *std::move(made));
      body(member);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

int64_t Nothing(int /*peer*/) {
  return 0;
}

// Shares that are all unlike, in memory of the members' own and in such as they share.
TEST(SegmentTrafficTest, SharesAreCountedToTheByte) {
  const std::vector<int64_t> counts{30'000, 20'000, 50'000};
  Together(3, [&](Member& member) {
    const auto share_of = [&](int rank) { return counts[static_cast<size_t>(rank)] * kElement; };
    const int64_t own = share_of(member.rank);
    Bytes share(static_cast<size_t>(own));
    Bytes whole(100'000 * kElement);
    const SharedBuffer shared = member.Shared(100'000 * kElement);
    for (const std::span<std::byte> buffer : {std::span<std::byte>(whole), shared.bytes()}) {
      Communicator& communicator = *member.communicator;
      const auto of_own = [&](int) { return own; };
      member.Expect(
          "all-gather",
          [&](const auto& options) {
            return communicator.AllGather(share, buffer, counts, DType::kF32, options);
          },
          of_own, share_of);
      member.Expect(
          "reduce-scatter",
          [&](const auto& options) {
            return communicator.ReduceScatter(buffer, share, counts, DType::kF32, ReduceOp::kSum,
                                              options);
          },
          share_of, of_own);
      const auto all = [&](int) { return int64_t{100'000} * kElement; };
      const auto of_root = [&](int peer) { return peer == 1 ? all(peer) : 0; };
      member.Expect(
          "broadcast",
          [&](const auto& options) { return communicator.Broadcast(buffer, 1, options); },
          member.rank == 1 ? Member::Bytes64(all) : Nothing, of_root);
      const auto both = [&](int peer) {
        return SliceOf(100'000 * kElement, 3, peer) + SliceOf(100'000 * kElement, 3, member.rank);
      };
      member.Expect(
          "all-reduce",
          [&](const auto& options) {
            return communicator.AllReduce(buffer, DType::kF32, ReduceOp::kSum, options);
          },
          both, both);
    }
    member.Expect(
        "barrier", [&](const auto& options) { return member.communicator->Barrier(options); },
        Nothing, Nothing);
  });
}

// What is small is counted when a MiB of it has come together.
TEST(SegmentTrafficTest, SmallSumsAreCountedTogether) {
  Together(3, [](Member& member) {
    Bytes buffer(4000);
    const auto times = [&](int count) {
      return [&member, &buffer, count](const CollectiveOptions& options) {
        Status status;
        for (int i = 0; i < count && status.ok(); ++i) {
          status = member.communicator->AllReduce(buffer, DType::kF32, ReduceOp::kSum, options);
        }
        return status;
      };
    };
    member.Expect("262 sums", times(262), Nothing, Nothing);
    const auto all = [](int) { return int64_t{263} * 4000; };
    member.Expect("one more", times(1), all, all);
    member.Expect("the next", times(262), Nothing, Nothing);
  });
}

// A sum is small up to 64 KiB, and up to 256 KiB of what a member reads of the others.
TEST(SegmentTrafficTest, WhatIsSmallIsSaidByTheCounts) {
  for (const auto& [members, limit] : {std::pair(3, 65536), std::pair(6, 52428)}) {
    const int64_t most = limit;  // Clang captures no structured binding.
    Together(members, [&](Member& member) {
      for (const int64_t bytes : {most, most + kElement}) {
        Bytes buffer(static_cast<size_t>(bytes));
        const auto counted = [&](int peer) {
          return bytes == most
                     ? 0
                     : SliceOf(bytes, member.size, peer) + SliceOf(bytes, member.size, member.rank);
        };
        member.Expect(
            "sum of " + std::to_string(bytes),
            [&](const auto& options) {
              return member.communicator->AllReduce(buffer, DType::kF32, ReduceOp::kSum, options);
            },
            counted, counted);
      }
    });
  }
}

/// Member 0 holds the numbers 0 and 1 as one, the others every second of those behind: all of them
/// travel.
TreeContributions Alternating(int each) {
  TreeContributions contributions;
  contributions.nodes.resize(3);
  contributions.nodes[0].push_back({.level = 1, .index = 0});
  for (int64_t number = 2; number < 2 + 2 * each; ++number) {
    contributions.nodes[static_cast<size_t>(1 + number % 2)].push_back(
        {.level = 0, .index = number});
  }
  return contributions;
}

TEST(SegmentTrafficTest, AReproducibleSumSendsWhatTravelsAndTheResult) {
  Together(3, [](Member& member) {
    const auto reduce = [&](int64_t bytes, int each, bool in_memory) {
      const TreeContributions contributions = Alternating(each);
      const Bytes value(static_cast<size_t>(bytes));
      const std::vector<std::span<const std::byte>> mine(
          contributions.nodes[static_cast<size_t>(member.rank)].size(), value);
      Bytes output(static_cast<size_t>(bytes));
      const auto travelling = [&](int rank) { return rank == 0 ? 1 : each; };
      const auto call = [&](const CollectiveOptions& options) {
        return member.communicator->ReduceTree(contributions, mine, output, DType::kF32, options);
      };
      if (in_memory) {
        member.Expect(
            std::to_string(bytes) + " bytes, " + std::to_string(each), call,
            [&](int peer) {
              return travelling(member.rank) * SliceOf(bytes, 3, peer) +
                     SliceOf(bytes, 3, member.rank);
            },
            [&](int peer) {
              return travelling(peer) * SliceOf(bytes, 3, member.rank) + SliceOf(bytes, 3, peer);
            });
        return;
      }
      const int64_t before = member.communicator->BytesSent()[static_cast<size_t>(1)];
      CollectiveOptions options;
      options.tag = static_cast<uint64_t>(bytes + each);
      ASSERT_TRUE(call(options).ok());
      const int64_t sent = member.communicator->BytesSent()[1] - before;
      options.tag += 1'000'000;
      ASSERT_TRUE(member.communicator->Barrier(options).ok());
      if (member.rank == 0) {
        EXPECT_NE(sent, SliceOf(bytes, 3, 1) + SliceOf(bytes, 3, 0)) << "frames have headers";
      }
    };
    reduce(100'000, 2, true);
    reduce(64 << 10, 2, true);
    reduce((64 << 10) - 4, 2, false);  // A few hops cost less than the steps of a block.
    reduce(100'000, 10, true);
    reduce(100'000, 11, false);  // The areas of so many values are too small.
  });
}

}  // namespace
}  // namespace heddle::comm
