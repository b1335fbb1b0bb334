// Every collective in shared memory: it writes its own buffers and nothing besides, goes by
// messages where the first member found no slot, and ends at its deadline where an emulated link
// owes.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/group/segment.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

constexpr int64_t kElement = 4;
constexpr size_t kGuard = size_t{2} << 20;  ///< More than is copied between two looks.

/// Private, or such as the members share, with room before and behind that nobody may touch.
class GuardedBuffer {
 public:
  GuardedBuffer(Endpoint& endpoint, bool shared, size_t bytes, std::byte fill) : bytes_(bytes) {
    if (shared) {
      shared_ = *endpoint.AllocateShared(bytes + 2 * kGuard);
      all_ = shared_.bytes();
    } else {
      private_.resize(bytes + 2 * kGuard);
      all_ = private_;
    }
    std::fill(all_.begin(), all_.end(), kUntouched);
    std::fill(bytes_of().begin(), bytes_of().end(), fill);
  }
  std::span<std::byte> bytes_of() const { return all_.subspan(kGuard, bytes_); }
  bool IsIntact() const {
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    return std::ranges::all_of(all_.first(kGuard), untouched) &&
           std::ranges::all_of(all_.last(kGuard), untouched);
  }

 private:
  static constexpr std::byte kUntouched{0xA5};
  const size_t bytes_;
  SharedBuffer shared_;
  Bytes private_;
  std::span<std::byte> all_;
};

// Shares that end within a piece, one of them behind all the others.
TEST(SegmentBoundsTest, NothingBesideTheBuffersIsWritten) {
  const std::vector<int64_t> counts{1, 400'003, 0, 700'001};
  const int64_t total = 1'100'005;
  const auto size = static_cast<int>(counts.size());
  Cluster cluster(size, Media::kShm);
  for (const bool shared : {false, true}) {
    cluster.Run(shared ? 2 : 1, [&](int rank, Communicator& communicator) {
      Endpoint& endpoint = cluster.endpoint(rank);
      const auto own = static_cast<size_t>(counts[static_cast<size_t>(rank)] * kElement);
      const auto all = static_cast<size_t>(total * kElement);
      const GuardedBuffer share(endpoint, shared, own, static_cast<std::byte>(rank + 1));
      const GuardedBuffer whole(endpoint, shared, all, std::byte{0});
      ASSERT_TRUE(
          communicator.AllGather(share.bytes_of(), whole.bytes_of(), counts, DType::kI32, {}).ok());
      size_t at = 0;
      for (int member = 0; member < size; ++member) {
        const auto bytes = static_cast<size_t>(counts[static_cast<size_t>(member)] * kElement);
        EXPECT_TRUE(std::ranges::all_of(whole.bytes_of().subspan(at, bytes), [&](std::byte byte) {
          return byte == static_cast<std::byte>(member + 1);
        })) << member;
        at += bytes;
      }
      std::ranges::fill(whole.bytes_of(), std::byte{3});
      ASSERT_TRUE(communicator
                      .ReduceScatter(whole.bytes_of(), share.bytes_of(), counts, DType::kI32,
                                     ReduceOp::kSum, {})
                      .ok());
      EXPECT_TRUE(std::ranges::all_of(share.bytes_of(),
                                      [](std::byte byte) { return byte == std::byte{12}; }));
      EXPECT_TRUE(std::ranges::all_of(whole.bytes_of(),
                                      [](std::byte byte) { return byte == std::byte{3}; }));
      ASSERT_TRUE(communicator.AllReduce(whole.bytes_of(), DType::kI32, ReduceOp::kSum, {}).ok());
      EXPECT_TRUE(std::ranges::all_of(whole.bytes_of(),
                                      [](std::byte byte) { return byte == std::byte{12}; }));
      std::ranges::fill(whole.bytes_of(), static_cast<std::byte>(rank + 40));
      ASSERT_TRUE(communicator.Broadcast(whole.bytes_of(), 3, {}).ok());
      EXPECT_TRUE(std::ranges::all_of(whole.bytes_of(),
                                      [](std::byte byte) { return byte == std::byte{43}; }));
      EXPECT_TRUE(share.IsIntact() && whole.IsIntact()) << rank;
    });
  }
}

/// One call of a kind, with the answer that it must give.
struct Kind {
  std::string name;
  std::function<Status(Communicator&, const CollectiveOptions&)> call;
  bool paced = false;  ///< By an emulated link.
};

constexpr size_t kCount = 30'000;
const std::vector<int64_t> kCounts{10'000, 20'000};

Status Right(const std::vector<float>& values, float expected) {
  return std::ranges::all_of(values, [=](float value) { return value == expected; })
             ? Status::Ok()
             : DataLossError("another answer");
}
std::vector<float> ShareOf(const Communicator& communicator) {
  return std::vector<float>(static_cast<size_t>(kCounts[static_cast<size_t>(communicator.rank())]),
                            1.0F);
}

Status Sum(Communicator& communicator, const CollectiveOptions& options, size_t count) {
  std::vector<float> values(count, 1.0F);
  HEDDLE_RETURN_IF_ERROR(
      communicator.AllReduce(RawOf(values), DType::kF32, ReduceOp::kSum, options));
  return Right(values, 2);
}
Status SmallSum(Communicator& communicator, const CollectiveOptions& options) {
  return Sum(communicator, options, 100);
}
Status LargeSum(Communicator& communicator, const CollectiveOptions& options) {
  return Sum(communicator, options, kCount);
}
Status Scatter(Communicator& communicator, const CollectiveOptions& options) {
  const std::vector<float> values(kCount, 1.0F);
  std::vector<float> share = ShareOf(communicator);
  HEDDLE_RETURN_IF_ERROR(communicator.ReduceScatter(RawOf(values), RawOf(share), kCounts,
                                                    DType::kF32, ReduceOp::kSum, options));
  return Right(share, 2);
}
Status Gather(Communicator& communicator, const CollectiveOptions& options) {
  std::vector<float> values(kCount);
  const std::vector<float> share = ShareOf(communicator);
  HEDDLE_RETURN_IF_ERROR(
      communicator.AllGather(RawOf(share), RawOf(values), kCounts, DType::kF32, options));
  return Right(values, 1);
}
Status Broadcast(Communicator& communicator, const CollectiveOptions& options) {
  std::vector<float> values(kCount, static_cast<float>(communicator.rank()));
  HEDDLE_RETURN_IF_ERROR(communicator.Broadcast(RawOf(values), 1, options));
  return Right(values, 1);
}
Status ReproducibleSum(Communicator& communicator, const CollectiveOptions& options) {
  TreeContributions contributions;
  contributions.nodes = {{{.level = 0, .index = 0}}, {{.level = 0, .index = 1}}};
  const std::vector<float> values(kCount, 1.0F);
  const std::vector<std::span<const std::byte>> mine{RawOf(values)};
  std::vector<float> sum(kCount);
  HEDDLE_RETURN_IF_ERROR(
      communicator.ReduceTree(contributions, mine, RawOf(sum), DType::kF32, options));
  return Right(sum, 2);
}
Status Meet(Communicator& communicator, const CollectiveOptions& options) {
  return communicator.Barrier(options);
}

/// Among two members; sums of ones.
const std::vector<Kind> kKinds = {
    {"small sum", SmallSum, true},     {"sum", LargeSum, true},
    {"reduce-scatter", Scatter, true}, {"all-gather", Gather, true},
    {"broadcast", Broadcast, true},    {"reproducible sum", ReproducibleSum, false},
    {"barrier", Meet, false}};

// The first member is in more calls than there are slots before anybody else comes: some of them
// find none, and say so in a message.
TEST(SegmentBoundsTest, ACallOfAnyKindThatFindsNoSlotGoesByMessages) {
  constexpr uint64_t kAtOnce = kSegmentSlots + 3;
  for (const Kind& kind : kKinds) {
    Cluster cluster(2, Media::kShm);
    std::atomic<bool> elsewhere = false;
    cluster.Run(1, [&](int rank, Communicator& communicator) {
      ASSERT_TRUE(communicator.Barrier({}).ok());
      const int64_t before = communicator.BytesSent()[static_cast<size_t>(1 - rank)];
      std::vector<std::thread> threads;
      for (uint64_t tag = 1; tag <= kAtOnce; ++tag) {
        threads.emplace_back([&, tag] {
          CollectiveOptions options;
          options.tag = tag;
          while (rank == 1 && !elsewhere.load()) {
            std::this_thread::yield();
          }
          const Status status = kind.call(communicator, options);
          EXPECT_TRUE(status.ok()) << kind.name << ": " << status.ToString();
        });
      }
      for (const Deadline deadline = After(std::chrono::minutes(2));
           rank == 0 && communicator.BytesSent()[1] == before && Now() < deadline;) {
        std::this_thread::yield();
      }
      elsewhere.store(elsewhere.load() || rank == 0);
      for (std::thread& thread : threads) {
        thread.join();
      }
    });
  }
}

// The link became slow after the members had agreed to share memory: what went through it is paid
// for, and a deadline ends that wait, too.
TEST(SegmentBoundsTest, ACallThatIsPacedEndsAtItsDeadline) {
  Cluster cluster(2, Media::kShm);
  int64_t generation = 0;
  for (const Kind& kind : kKinds) {
    if (!kind.paced) {
      continue;
    }
    for (int rank = 0; rank < 2; ++rank) {
      cluster.endpoint(rank).SetLinkRate(0);
    }
    cluster.Run(++generation, [&](int rank, Communicator& communicator) {
      ASSERT_TRUE(communicator.Barrier({}).ok());
      if (rank == 0) {
        cluster.endpoint(0).SetLinkRate(1);
      }
      CollectiveOptions options;
      options.tag = 1;
      options.deadline =
          After(rank == 0 ? std::chrono::milliseconds(100) : std::chrono::milliseconds(120'000));
      const Status status = kind.call(communicator, options);
      if (rank == 0) {
        EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << kind.name << status.ToString();
        cluster.endpoint(0).SetLinkRate(0);  // Last words are not to wait for it.
      }
    });
  }
}

// Over a transport that passes no descriptors nothing is exchanged to find that out.
TEST(SegmentBoundsTest, MembersThatCannotShareSayNothingOfIt) {
  Cluster cluster(2, Media::kTcp);
  std::vector<std::thread> threads;
  std::atomic<int> looked = 0;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = cluster.Options(rank, 1);
      options.diagnose_calls = false;
      const auto group = cluster.endpoint(rank).Connect(options, After(std::chrono::minutes(2)));
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      EXPECT_TRUE((*group)->Barrier({}).ok());
      EXPECT_EQ((*group)->BytesSent()[static_cast<size_t>(1 - rank)],
                static_cast<int64_t>(sizeof(FrameHeader)))
          << "up the tree, or down";
      for (++looked; looked.load() < 2;) {
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace heddle::comm
