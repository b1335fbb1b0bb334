// The reproducible reduction: the same bits whoever holds which contributions.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/tensor/reduction_tree.h"
#include "comm/communicator.h"
#include "tests/comm/cluster.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

template <typename T>
std::vector<T> Leaf(uint64_t seed, int64_t number, size_t elements) {
  std::vector<T> values(elements);
  for (size_t i = 0; i < elements; ++i) {
    // Magnitudes that differ by orders, so that another order of additions shows in the bits.
    const auto words = Philox(seed, static_cast<uint64_t>(number), i);
    const double scale = static_cast<double>(1U << (words[1] % 20));
    values[i] = static_cast<T>((static_cast<double>(words[0]) * 0x1.0p-31 - 1.0) * scale);
  }
  return values;
}

// The reference: the value of a node of the full tree over `total` leaves, by the definition.
template <typename T>
std::vector<T> NodeValue(uint64_t seed, TreeNode node, int64_t total, size_t elements) {
  if (node.level == 0) {
    return Leaf<T>(seed, node.index, elements);
  }
  const TreeNode left{.level = node.level - 1, .index = 2 * node.index};
  const TreeNode right{.level = node.level - 1, .index = 2 * node.index + 1};
  std::vector<T> values = NodeValue<T>(seed, left, total, elements);
  if (right.first() < total) {
    const std::vector<T> other = NodeValue<T>(seed, right, total, elements);
    for (size_t i = 0; i < elements; ++i) {
      values[i] += other[i];
    }
  }
  return values;
}

template <typename T>
std::vector<T> WholeValue(uint64_t seed, int64_t total, size_t elements) {
  int level = 0;
  while ((int64_t{1} << level) < total) {
    ++level;
  }
  return NodeValue<T>(seed, {.level = level, .index = 0}, total, elements);
}

template <typename T>
std::vector<T> HeldValue(uint64_t seed, TreeNode node, int64_t total, size_t elements) {
  return NodeValue<T>(seed, node, total, elements);
}

// Shares of all elements, of any size, and none at times.
std::vector<int64_t> RandomShares(Random& random, int64_t elements, int members) {
  std::vector<int64_t> cuts{0, elements};
  for (int i = 1; i < members; ++i) {
    cuts.push_back(random.Below(4) == 0 ? cuts.back() : random.Between(0, elements));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<int64_t> counts;
  for (size_t i = 1; i < cuts.size(); ++i) {
    counts.push_back(cuts[i] - cuts[i - 1]);
  }
  return counts;
}

template <typename T>
bool SameBits(const std::vector<T>& values, const T* expected) {
  return values.empty() || std::memcmp(values.data(), expected, values.size() * sizeof(T)) == 0;
}

class ReduceTreeTest : public ::testing::TestWithParam<Media> {};

template <typename T>
void RunGrouping(
    Media media, uint64_t seed, int size, int64_t total, size_t elements, DType dtype) {
  // Random cuts of [0, total): member i holds [cuts[i], cuts[i + 1]), maybe nothing; in random
  // order, and sometimes leaf by leaf instead of as whole subtrees.
  Random random(seed);
  std::vector<int64_t> cuts{0, total};
  for (int i = 1; i < size; ++i) {
    cuts.push_back(random.Between(0, total));
  }
  std::sort(cuts.begin(), cuts.end());
  TreeContributions contributions;
  contributions.nodes.resize(static_cast<size_t>(size));
  std::vector<size_t> order(static_cast<size_t>(size));
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    auto& nodes = contributions.nodes[order[i]];
    if (random.Below(3) == 0) {
      for (int64_t number = cuts[i]; number < cuts[i + 1]; ++number) {
        nodes.push_back({.level = 0, .index = number});
      }
    } else {
      nodes = CoverRange(cuts[i], cuts[i + 1]);
    }
  }
  const std::vector<T> expected = WholeValue<T>(seed, total, elements);
  const std::vector<int64_t> counts = RandomShares(random, static_cast<int64_t>(elements), size);
  const uint64_t tag = random.Next();
  Cluster cluster(size, media);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    std::vector<std::vector<T>> values;
    for (const TreeNode& node : contributions.nodes[static_cast<size_t>(rank)]) {
      values.push_back(HeldValue<T>(seed, node, total, elements));
    }
    const auto kept = values;
    std::vector<std::span<const std::byte>> mine;
    for (const auto& value : values) {
      mine.push_back(std::as_bytes(std::span(value)));
    }
    std::vector<T> output(elements);
    const Status status = communicator.ReduceTree(contributions, mine, RawOf(output), dtype,
                                                  {.group = {}, .tag = tag, .deadline = {}});
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(SameBits(output, expected.data()))
        << "bits differ: " << size << " members, " << total << " contributions, " << elements
        << " elements";
    std::vector<T> share(static_cast<size_t>(counts[static_cast<size_t>(rank)]));
    const Status scattered =
        communicator.ReduceScatterTree(contributions, mine, RawOf(share), counts, dtype,
                                       {.group = {}, .tag = tag, .deadline = {}});
    ASSERT_TRUE(scattered.ok()) << scattered.ToString();
    const auto first = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
    EXPECT_TRUE(SameBits(share, expected.data() + first)) << "of a share";
    EXPECT_EQ(values, kept) << "inputs stay";
  });
}

TEST_P(ReduceTreeTest, BitsDoNotDependOnTheGrouping) {
  const uint64_t seed = testing::TestSeed();
  Random random(seed);
  for (int i = 0; i < 40; ++i) {
    const int size = static_cast<int>(random.Between(1, 6));
    const int64_t total = random.Between(1, 13);
    const size_t elements = random.Below(4) == 0 ? random.Below(3) : random.Below(30000);
    if (random.Below(2) == 0) {
      RunGrouping<float>(GetParam(), random.Next(), size, total, elements, DType::kF32);
    } else {
      RunGrouping<double>(GetParam(), random.Next(), size, total, elements, DType::kF64);
    }
  }
}

TEST_P(ReduceTreeTest, LargeTensorsGoInPieces) {
  RunGrouping<float>(GetParam(), 17, 3, 5, (1 << 20) + 13, DType::kF32);
  // Many values a member, blocks that do not come out even, and a member that brings nothing.
  RunGrouping<float>(GetParam(), 18, 2, 11, 700'001, DType::kF32);
  RunGrouping<double>(GetParam(), 19, 5, 3, 200'003, DType::kF64);
}

// A place of a segment serves a block after the other: members that fall behind each other, at
// other places in each round, still find what they are to read.
TEST_P(ReduceTreeTest, SumsFollowEachOtherWhileMembersFallBehind) {
  constexpr int kSize = 4;
  constexpr size_t kElements = 900'007;
  const uint64_t seed = testing::TestSeed();
  const auto value_of = [&](int round, int number, size_t i) {
    const uint64_t word = (seed + i * 4 + static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15U +
                          static_cast<uint64_t>(round);
    return static_cast<float>(word >> 40U) * (number % 2 == 0 ? 1.0F : 0x1.0p-7F);
  };
  TreeContributions contributions;
  for (int64_t rank = 0; rank < kSize; ++rank) {
    contributions.nodes.push_back({{.level = 0, .index = rank}});
  }
  Cluster cluster(kSize, GetParam());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    Random random(seed + static_cast<uint64_t>(rank));
    std::vector<float> value(kElements);
    std::vector<float> output(kElements);
    const std::vector<std::span<const std::byte>> mine{RawOf(value)};
    for (int round = 0; round < 6; ++round) {
      for (size_t i = 0; i < kElements; ++i) {
        value[i] = value_of(round, rank, i);
      }
      // A competitor for the cores, which takes them away at any place of the sum.
      std::atomic<bool> stop = false;
      std::thread competitor([&, pause = random.Below(300)] {
        while (!stop.load()) {
          std::this_thread::sleep_for(std::chrono::microseconds(50 + pause));
          for (const Time until = After(std::chrono::microseconds(700)); Now() < until;) {
          }
        }
      });
      const Status status =
          communicator.ReduceTree(contributions, mine, RawOf(output), DType::kF32, {});
      stop.store(true);
      competitor.join();
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (size_t i = 0; i < kElements; ++i) {
        const float expected = (value_of(round, 0, i) + value_of(round, 1, i)) +
                               (value_of(round, 2, i) + value_of(round, 3, i));
        ASSERT_EQ(output[i], expected) << i << " in round " << round;
      }
    }
  });
}

TEST_P(ReduceTreeTest, OutputMayBeOneOfTheInputs) {
  Cluster cluster(3, GetParam());
  const size_t elements = 500001;
  const std::vector<float> expected = WholeValue<float>(3, 3, elements);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    TreeContributions contributions;
    for (int64_t i = 0; i < 3; ++i) {
      contributions.nodes.push_back({{.level = 0, .index = i}});
    }
    std::vector<float> value = Leaf<float>(3, rank, elements);
    const std::vector<std::span<const std::byte>> mine{RawOf(value)};
    const Status status =
        communicator.ReduceTree(contributions, mine, RawOf(value), DType::kF32, {});
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(value, expected);
  });
}

TEST(ReduceTreeArgumentsTest, DisagreementsAreNamed) {
  Cluster cluster(1, Media::kShm);
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    std::vector<float> value(4);
    std::vector<float> output(4);
    const std::vector<std::span<const std::byte>> mine{RawOf(value)};
    const auto code = [&](std::vector<TreeNode> nodes, std::span<std::byte> out, DType dtype) {
      return communicator.ReduceTree({.nodes = {std::move(nodes)}}, mine, out, dtype, {}).code();
    };
    EXPECT_EQ(code({{0, 0}}, RawOf(output), DType::kF32), StatusCode::kOk);
    EXPECT_EQ(code({{0, 0}}, RawOf(output), DType::kBF16), StatusCode::kInvalidArgument);
    EXPECT_EQ(code({{0, 0}}, RawOf(output).first(8), DType::kF32), StatusCode::kInvalidArgument);
    EXPECT_EQ(code({}, RawOf(output), DType::kF32), StatusCode::kInvalidArgument);
    EXPECT_EQ(code({{0, 0}, {0, 1}}, RawOf(output), DType::kF32), StatusCode::kInvalidArgument);
    EXPECT_EQ(code({{-1, 0}}, RawOf(output), DType::kF32), StatusCode::kInvalidArgument);
    EXPECT_EQ(communicator
                  .ReduceTree({.nodes = {{{1, 0}, {0, 1}}}},
                              std::vector<std::span<const std::byte>>(2, RawOf(value)),
                              RawOf(output), DType::kF32, {})
                  .code(),
              StatusCode::kInvalidArgument);
  });
}

// No result travels: what the members send is each sum of a share, once, to whose share it is.
TEST_P(ReduceTreeTest, AShareTravelsToItsMemberAlone) {
  constexpr int kSize = 4;
  constexpr int64_t kElements = 100'000;
  const std::vector<int64_t> counts{kElements / 2, 0, kElements / 4, kElements / 4};
  TreeContributions contributions;
  for (int64_t i = 0; i < kSize; ++i) {
    contributions.nodes.push_back({{.level = 0, .index = i}});
  }
  Cluster cluster(kSize, GetParam());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const std::vector<float> value(kElements, 1);
    const std::vector<std::span<const std::byte>> mine{RawOf(value)};
    std::vector<float> share(static_cast<size_t>(counts[static_cast<size_t>(rank)]));
    ASSERT_TRUE(communicator.Barrier({}).ok());  // Nothing else is under way.
    const std::vector<int64_t> before = communicator.BytesSent();
    const Status status =
        communicator.ReduceScatterTree(contributions, mine, RawOf(share), counts, DType::kF32, {});
    ASSERT_TRUE(status.ok()) << status.ToString();
    const std::vector<int64_t> after = communicator.BytesSent();
    for (int peer = 0; peer < kSize; ++peer) {
      const auto index = static_cast<size_t>(peer);
      const int64_t sums = peer == rank ? 0 : counts[index] * static_cast<int64_t>(sizeof(float));
      EXPECT_GE(after[index] - before[index], sums) << rank << " to " << peer;
      EXPECT_LE(after[index] - before[index], sums + sums / 50 + 1024) << rank << " to " << peer;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Media,
                         ReduceTreeTest,
                         ::testing::ValuesIn(MediaHere({.mixed = true})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
