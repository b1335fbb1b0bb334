// Collectives against a scalar reference, over every medium, group size, type and operation.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/communicator.h"
#include "tests/comm/cluster.h"
#include "tests/comm/elements.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

// A byte holds value + 5: none is negative.
void Append(Bytes& bytes, DType dtype, int64_t value) {
  const size_t before = bytes.size();
  bytes.resize(before + static_cast<size_t>(SizeOf(dtype)));  // Callers have reserved the room.
  PutElement(bytes.data() + before, dtype, value + (dtype == DType::kU8 ? 5 : 0));
}

Bytes Input(uint64_t seed, int rank, int64_t first, int64_t count, DType dtype) {
  Bytes bytes;
  bytes.reserve(static_cast<size_t>(count * SizeOf(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    Append(bytes, dtype, ElementOf(seed, rank, first + i));
  }
  return bytes;
}

Bytes Reduced(uint64_t seed,
              std::span<const int> ranks,
              int64_t first,
              int64_t count,
              DType dtype,
              ReduceOp op) {
  Bytes bytes;
  bytes.reserve(static_cast<size_t>(count * SizeOf(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    int64_t result = ElementOf(seed, ranks[0], first + i);
    for (const int rank : ranks.subspan(1)) {
      const int64_t value = ElementOf(seed, rank, first + i);
      // Bytes hold value + 5, and their sums wrap.
      result = op == ReduceOp::kSum   ? result + value + (dtype == DType::kU8 ? 5 : 0)
               : op == ReduceOp::kMax ? std::max(result, value)
                                      : std::min(result, value);
    }
    Append(bytes, dtype, result);
  }
  return bytes;
}

std::vector<int> Everyone(int size) {
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) {
    ranks.push_back(i);
  }
  return ranks;
}

struct Case {
  Media media;
  int size;
};

class CollectiveTest : public ::testing::TestWithParam<Case> {};

TEST_P(CollectiveTest, AllReduceEqualsTheScalarReference) {
  const uint64_t seed = testing::TestSeed();
  Cluster cluster(GetParam().size, GetParam().media);
  const std::vector<int> ranks = Everyone(cluster.size());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    uint64_t tag = 0;
    for (const DType dtype : kElementTypes) {
      for (const ReduceOp op : kReduceOps) {
        for (const int64_t count : {0, 1, 3, 1001, 40007}) {
          Bytes buffer = Input(seed, rank, 0, count, dtype);
          const Status status = communicator.AllReduce(buffer, dtype, op,
                                                       {.group = {}, .tag = ++tag, .deadline = {}});
          ASSERT_TRUE(status.ok()) << status.ToString();
          ASSERT_EQ(buffer, Reduced(seed, ranks, 0, count, dtype, op))
              << DTypeName(dtype) << " " << count;
        }
      }
    }
    Bytes large = Input(seed, rank, 0, 1 << 20, DType::kF32);
    const Status status = communicator.AllReduce(large, DType::kF32, ReduceOp::kSum,
                                                 {.group = {}, .tag = ++tag, .deadline = {}});
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(large, Reduced(seed, ranks, 0, 1 << 20, DType::kF32, ReduceOp::kSum));
  });
}

std::vector<int64_t> UnevenCounts(uint64_t seed, int size, int64_t scale) {
  std::vector<int64_t> counts;
  for (int i = 0; i < size; ++i) {
    const auto draw = static_cast<int64_t>(Philox(seed, 77, static_cast<uint64_t>(i + scale))[1]);
    counts.push_back(draw % 4 == 0 ? 0 : draw % (scale + 1));
  }
  return counts;
}

TEST_P(CollectiveTest, UnevenSharesScatterAndGather) {
  const uint64_t seed = testing::TestSeed();
  Cluster cluster(GetParam().size, GetParam().media);
  const std::vector<int> ranks = Everyone(cluster.size());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    uint64_t tag = 0;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8}) {
      for (const int64_t scale : {0, 1, 5, 2000, 150000}) {
        const auto counts =
            UnevenCounts(seed + static_cast<uint64_t>(dtype), communicator.size(), scale);
        int64_t first = 0;
        int64_t total = 0;
        for (size_t i = 0; i < counts.size(); ++i) {
          first += static_cast<int>(i) < rank ? counts[i] : 0;
          total += counts[i];
        }
        const int64_t own = counts[static_cast<size_t>(rank)];
        const Bytes input = Input(seed, rank, 0, total, dtype);
        Bytes share(static_cast<size_t>(own * SizeOf(dtype)));
        Status status = communicator.ReduceScatter(input, share, counts, dtype, ReduceOp::kSum,
                                                   {.group = {}, .tag = ++tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(share, Reduced(seed, ranks, first, own, dtype, ReduceOp::kSum));
        ASSERT_EQ(input, Input(seed, rank, 0, total, dtype)) << "inputs stay";

        Bytes whole(static_cast<size_t>(total * SizeOf(dtype)));
        status = communicator.AllGather(share, whole, counts, dtype,
                                        {.group = {}, .tag = ++tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(whole, Reduced(seed, ranks, 0, total, dtype, ReduceOp::kSum));
      }
    }
  });
}

// The last rank first; positions, not ranks, say which share and which root is whose.
TEST_P(CollectiveTest, AGroupMayHaveAnyOrder) {
  Cluster cluster(GetParam().size, GetParam().media);
  std::vector<int> group = Everyone(cluster.size());
  std::reverse(group.begin() + cluster.size() / 3, group.end());
  std::reverse(group.begin(), group.end());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    uint64_t tag = 0;
    // Then everyone by rank, which is another group.
    for (const std::vector<int>& order : {group, Everyone(communicator.size())}) {
      const std::vector<int> named = order == group ? group : std::vector<int>();
      const auto position =
          static_cast<size_t>(std::find(order.begin(), order.end(), rank) - order.begin());
      for (const int64_t scale : {5, 2000, 150000}) {
        const auto counts = UnevenCounts(3, communicator.size(), scale);
        const auto first = std::accumulate(
            counts.begin(), counts.begin() + static_cast<ptrdiff_t>(position), int64_t{0});
        const auto total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
        const Bytes input = Input(1, rank, 0, total, DType::kI32);
        Bytes share(static_cast<size_t>(counts[position]) * 4);
        Status status =
            communicator.ReduceScatter(input, share, counts, DType::kI32, ReduceOp::kSum,
                                       {.group = named, .tag = ++tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(share, Reduced(1, order, first, counts[position], DType::kI32, ReduceOp::kSum));
        Bytes whole(input.size());
        status = communicator.AllGather(share, whole, counts, DType::kI32,
                                        {.group = named, .tag = ++tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(whole, Reduced(1, order, 0, total, DType::kI32, ReduceOp::kSum));
        Bytes sum = input;
        status = communicator.AllReduce(sum, DType::kI32, ReduceOp::kSum,
                                        {.group = named, .tag = ++tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(sum, whole);
        Bytes roots = input;
        status = communicator.Broadcast(roots, 0, {.group = named, .tag = ++tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(roots, Input(1, order[0], 0, total, DType::kI32));
      }
    }
  });
}

TEST_P(CollectiveTest, BroadcastReachesEveryoneFromEveryRoot) {
  Cluster cluster(GetParam().size, GetParam().media);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    uint64_t tag = 0;
    for (int root = 0; root < communicator.size(); ++root) {
      for (const int64_t bytes : {0, 1, 65536, 65537, 600001}) {
        Bytes buffer = Input(5, rank, 0, bytes, DType::kU8);
        const Status status =
            communicator.Broadcast(buffer, root, {.group = {}, .tag = ++tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(buffer, Input(5, root, 0, bytes, DType::kU8));
      }
    }
  });
}

TEST_P(CollectiveTest, SubgroupsAndConcurrentCallsKeepApart) {
  Cluster cluster(GetParam().size, GetParam().media);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    // The even and the odd ranks as groups of their own, four calls at once, all with their own
    // tags.
    std::vector<int> group;
    for (int i = rank % 2; i < communicator.size(); i += 2) {
      group.push_back(i);
    }
    std::vector<std::thread> threads;
    for (uint64_t tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&, tag] {
        const int64_t count = tag % 2 == 0 ? 500 : 60000;
        Bytes buffer = Input(tag, rank, 0, count, DType::kI32);
        const Status status = communicator.AllReduce(buffer, DType::kI32, ReduceOp::kSum,
                                                     {.group = group, .tag = tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(buffer, Reduced(tag, group, 0, count, DType::kI32, ReduceOp::kSum));
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    const Status barrier = communicator.Barrier({.group = group, .tag = 99, .deadline = {}});
    ASSERT_TRUE(barrier.ok()) << barrier.ToString();
  });
}

// Numbers of `rank` with full mantissas.
Bytes Rounded(int rank, DType dtype, int64_t count) {
  const auto element = static_cast<size_t>(SizeOf(dtype));
  Bytes bytes(static_cast<size_t>(count) * element);
  for (int64_t i = 0; i < count; ++i) {
    const auto words = Philox(9, static_cast<uint64_t>(rank), static_cast<uint64_t>(i));
    const float value = static_cast<float>(words[0]) * 0x1.0p-31F - 1.0F;
    std::byte* const at = bytes.data() + static_cast<size_t>(i) * element;
    if (dtype == DType::kF32) {
      PutAs(at, value);
    } else if (dtype == DType::kBF16) {
      PutAs(at, static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    } else {
      PutAs(at, static_cast<uint16_t>((words[1] & 0x83FFU) | (14U << 10)));
    }
  }
  return bytes;
}

TEST_P(CollectiveTest, AllReduceOfRoundedFloatsGivesEveryoneTheSameBits) {
  Cluster cluster(GetParam().size, GetParam().media);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t count : {100, 50000}) {
      std::vector<Bytes> results(static_cast<size_t>(cluster.size()));
      cluster.Run(static_cast<int64_t>(dtype) * 10 + (count == 100 ? 1 : 2),
                  [&](int rank, Communicator& communicator) {
                    Bytes buffer = Rounded(rank, dtype, count);
                    const Status status = communicator.AllReduce(buffer, dtype, ReduceOp::kSum, {});
                    ASSERT_TRUE(status.ok()) << status.ToString();
                    results[static_cast<size_t>(rank)] = buffer;
                  });
      for (const Bytes& result : results) {
        EXPECT_EQ(result, results[0]);
      }
    }
  }
}

TEST_P(CollectiveTest, SeveralInFlightAndUrgentMessagesBesides) {
  Cluster cluster(GetParam().size, GetParam().media);
  const std::vector<int> ranks = Everyone(cluster.size());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    std::vector<Bytes> buffers;
    for (uint64_t i = 0; i < 10; ++i) {
      buffers.push_back(Input(i, rank, 0, i % 2 == 0 ? 300 : 300000, DType::kF32));
    }
    std::vector<Work> works;
    for (uint64_t i = 0; i < buffers.size(); ++i) {
      works.push_back(communicator.Start(
          [&communicator, &buffer = buffers[i], i] {
            return communicator.AllReduce(buffer, DType::kF32, ReduceOp::kSum,
                                          {.group = {}, .tag = i, .deadline = {}});
          },
          /*urgent=*/false));
    }
    if (communicator.size() > 1) {
      const int next = (rank + 1) % communicator.size();
      const int previous = (rank + communicator.size() - 1) % communicator.size();
      const Bytes activation(8192, std::byte{7});
      Bytes arrived(8192);
      const Work arriving = communicator.Recv(previous, 1, arrived, true);
      const Work leaving = communicator.Send(next, 1, activation, true);
      ASSERT_TRUE(arriving.Wait().ok());
      ASSERT_TRUE(leaving.Wait().ok());
      ASSERT_EQ(arrived, activation);
    }
    for (uint64_t i = 0; i < buffers.size(); ++i) {
      const Status status = works[i].Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(buffers[i], Reduced(i, ranks, 0, static_cast<int64_t>(buffers[i].size() / 4),
                                    DType::kF32, ReduceOp::kSum));
    }
  });
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Media& media : MediaHere({.mixed = true})) {
    for (int size = 1; size <= 6; ++size) {
      if (media == Media::kShm || size > 1) {
        cases.push_back({media, size});
      }
    }
  }
  cases.push_back({Media::kTls, 2});
  cases.push_back({Media::kTls, 5});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Media, CollectiveTest, ::testing::ValuesIn(AllCases()), [](const auto& parameter) {
      return MediaName(parameter.param.media) + std::to_string(parameter.param.size);
    });

}  // namespace
}  // namespace heddle::comm
