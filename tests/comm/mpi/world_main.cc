// The communicator over MPI as real processes: started by mpirun, every rank runs the same tests.
// Collectives are compared with a scalar reference; rounded sums, and the bits of the reproducible
// reduction, with those over shared memory and TCP.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include "base/random.h"
#include "base/tensor/reduction_tree.h"
#include "comm/collective/reduce.h"
#include "comm/mpi/world.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

MpiWorld* world = nullptr;
uint64_t seed = 0;

std::unique_ptr<Communicator> Connected() {
  static int64_t generation = 0;
  auto communicator = world->Connect(++generation, kAmple, After(kAmple));
  EXPECT_TRUE(communicator.ok()) << communicator.status().ToString();
  return communicator.ok() ? *std::move(communicator) : nullptr;
}

// Small integers, which every type holds exactly, so that the reference needs no order.
int64_t Element(uint64_t stream, int rank, int64_t i) {
  const uint64_t mixed =
      (seed + stream * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(rank) * 0xC2B2AE3D27D4EB4FU +
       static_cast<uint64_t>(i)) *
      0xD6E8FEB86659FD93U;
  return static_cast<int64_t>((mixed >> 40) % 11) - 5;
}

Bytes Encode(const std::vector<int64_t>& values, DType dtype) {
  Bytes bytes(values.size() * static_cast<size_t>(SizeOf(dtype)));
  const auto put = [&]<typename T>(T /*type*/) {
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  switch (dtype) {
    case DType::kF32:
      put(float{});
      break;
    case DType::kF64:
      put(double{});
      break;
    case DType::kI32:
      put(int32_t{});
      break;
    case DType::kI64:
      put(int64_t{});
      break;
    case DType::kU8:
      put(uint8_t{});
      break;
    case DType::kF16:
    case DType::kBF16: {
      const std::vector<float> floats(values.begin(), values.end());
      Convert(RawOf(floats), DType::kF32, bytes, dtype);
      break;
    }
  }
  return bytes;
}

Bytes Input(uint64_t stream, int rank, int64_t count, DType dtype) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) {
    // Bytes have no sign.
    values.push_back(Element(stream, rank, i) + (dtype == DType::kU8 ? 5 : 0));
  }
  return Encode(values, dtype);
}

Bytes Reduced(uint64_t stream,
              const std::vector<int>& ranks,
              int64_t first,
              int64_t count,
              DType dtype,
              ReduceOp op) {
  const int64_t shift = dtype == DType::kU8 ? 5 : 0;
  std::vector<int64_t> values;
  for (int64_t i = first; i < first + count; ++i) {
    int64_t result = Element(stream, ranks[0], i) + shift;
    for (size_t other = 1; other < ranks.size(); ++other) {
      const int64_t value = Element(stream, ranks[other], i) + shift;
      result = op == ReduceOp::kSum   ? result + value
               : op == ReduceOp::kMax ? std::max(result, value)
                                      : std::min(result, value);
    }
    values.push_back(result);
  }
  return Encode(values, dtype);
}

std::vector<int> Everyone() {
  std::vector<int> ranks;
  for (int rank = 0; rank < world->size(); ++rank) {
    ranks.push_back(rank);
  }
  return ranks;
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                            DType::kI32, DType::kI64,  DType::kU8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

TEST(MpiTest, EveryPairIsJoinedByMpi) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  for (int peer = 0; peer < world->size(); ++peer) {
    EXPECT_EQ(communicator->transport(peer), peer == world->rank() ? "self" : "mpi");
    EXPECT_EQ(communicator->member_name(peer), "rank-" + std::to_string(peer));
  }
  const Status barrier = communicator->Barrier({});
  EXPECT_TRUE(barrier.ok()) << barrier.ToString();
}

TEST(MpiTest, AllReduceEqualsTheScalarReference) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  uint64_t tag = 0;
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const int64_t count : {0, 1, 3, 1001, 40007}) {
        Bytes buffer = Input(++tag, world->rank(), count, dtype);
        const Status status =
            communicator->AllReduce(buffer, dtype, op, {.group = {}, .tag = tag, .deadline = {}});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(buffer, Reduced(tag, Everyone(), 0, count, dtype, op))
            << DTypeName(dtype) << " " << count;
      }
    }
  }
}

// 64 MiB: far beyond the window of every pipe. Whole numbers, so each sum is exact.
TEST(MpiTest, LargeBuffersPassInPieces) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  std::vector<float> values(size_t{16} << 20);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i + static_cast<size_t>(world->rank())) % 1000);
  }
  const Status status = communicator->AllReduce(RawOf(values), DType::kF32, ReduceOp::kSum, {});
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < values.size(); ++i) {
    float expected = 0;
    for (int rank = 0; rank < world->size(); ++rank) {
      expected += static_cast<float>((i + static_cast<size_t>(rank)) % 1000);
    }
    ASSERT_EQ(values[i], expected) << i;
  }
}

TEST(MpiTest, UnevenSharesScatterAndGather) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  uint64_t tag = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8}) {
    for (const int64_t scale : {0, 1, 5, 2000, 50000}) {
      ++tag;
      std::vector<int64_t> counts;
      int64_t total = 0;
      int64_t first = 0;
      for (int rank = 0; rank < world->size(); ++rank) {
        const auto draw = static_cast<int64_t>(Philox(seed, tag, static_cast<uint64_t>(rank))[1]);
        counts.push_back(draw % 4 == 0 ? 0 : draw % (scale + 1));
        first += rank < world->rank() ? counts.back() : 0;
        total += counts.back();
      }
      const int64_t own = counts[static_cast<size_t>(world->rank())];
      const Bytes input = Input(tag, world->rank(), total, dtype);
      Bytes share(static_cast<size_t>(own * SizeOf(dtype)));
      Status status = communicator->ReduceScatter(input, share, counts, dtype, ReduceOp::kSum,
                                                  {.group = {}, .tag = tag, .deadline = {}});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(share, Reduced(tag, Everyone(), first, own, dtype, ReduceOp::kSum));
      Bytes whole(static_cast<size_t>(total * SizeOf(dtype)));
      status = communicator->AllGather(share, whole, counts, dtype,
                                       {.group = {}, .tag = tag + 1000, .deadline = {}});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(whole, Reduced(tag, Everyone(), 0, total, dtype, ReduceOp::kSum));
    }
  }
}

TEST(MpiTest, BroadcastReachesEveryoneFromEveryRoot) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  uint64_t tag = 0;
  for (int root = 0; root < world->size(); ++root) {
    for (const int64_t bytes : {0, 1, 65536, 65537, 600001}) {
      Bytes buffer = Input(++tag, world->rank(), bytes, DType::kU8);
      const Status status =
          communicator->Broadcast(buffer, root, {.group = {}, .tag = tag, .deadline = {}});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(buffer, Input(tag, root, bytes, DType::kU8));
    }
  }
}

TEST(MpiTest, AllGatherBytesGivesEveryRecordInRankOrder) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  for (const int64_t scale : {0, 1, 400, 100000}) {
    const Bytes mine = Input(7, world->rank(), scale * world->rank(), DType::kU8);
    const auto all = communicator->AllGatherBytes(
        mine, {.group = {}, .tag = static_cast<uint64_t>(scale), .deadline = {}});
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    for (int rank = 0; rank < world->size(); ++rank) {
      EXPECT_EQ((*all)[static_cast<size_t>(rank)], Input(7, rank, scale * rank, DType::kU8));
    }
  }
}

TEST(MpiTest, MessagesOfAllSizesCrossInBothDirections) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  const std::vector<int64_t> sizes{0, 1, 7, 4096, 65536, 65537, 300001, 4 << 20};
  std::vector<Bytes> outgoing;
  std::vector<Bytes> incoming;
  outgoing.reserve(sizes.size() * static_cast<size_t>(world->size()));
  incoming.reserve(outgoing.capacity());
  std::vector<Work> works;
  for (int peer = 0; peer < world->size(); ++peer) {
    for (size_t i = 0; peer != world->rank() && i < sizes.size(); ++i) {
      incoming.emplace_back(static_cast<size_t>(sizes[i]));
      works.push_back(communicator->Recv(peer, i, incoming.back(), i % 2 == 0));
      outgoing.push_back(
          Input(i + static_cast<uint64_t>(peer) * 100, world->rank(), sizes[i], DType::kU8));
      works.push_back(communicator->Send(peer, i, outgoing.back(), i % 2 == 0));
    }
  }
  for (const Work& work : works) {
    const Status status = work.Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  size_t at = 0;
  for (int peer = 0; peer < world->size(); ++peer) {
    for (size_t i = 0; peer != world->rank() && i < sizes.size(); ++i, ++at) {
      EXPECT_EQ(incoming[at],
                Input(i + static_cast<uint64_t>(world->rank()) * 100, peer, sizes[i], DType::kU8));
    }
  }
}

TEST(MpiTest, SubgroupsAndConcurrentCallsKeepApart) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  std::vector<int> group;
  for (int rank = world->rank() % 2; rank < world->size(); rank += 2) {
    group.push_back(rank);
  }
  std::vector<std::thread> threads;
  for (uint64_t tag = 0; tag < 4; ++tag) {
    threads.emplace_back([&, tag] {
      const int64_t count = tag % 2 == 0 ? 500 : 60000;
      Bytes buffer = Input(tag, world->rank(), count, DType::kI32);
      const Status status = communicator->AllReduce(buffer, DType::kI32, ReduceOp::kSum,
                                                    {.group = group, .tag = tag, .deadline = {}});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(buffer, Reduced(tag, group, 0, count, DType::kI32, ReduceOp::kSum));
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

std::vector<float> Rough(int rank, size_t elements) {
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i) {
    // Magnitudes that differ by orders, so that another order of additions shows in the bits.
    const auto words = Philox(seed, static_cast<uint64_t>(rank), i);
    values[i] = (static_cast<float>(words[0]) * 0x1.0p-31F - 1.0F) *
                static_cast<float>(1U << (words[1] % 20));
  }
  return values;
}

// Contributions 0 … n-1, one a rank, in the reverse order of ranks.
TreeContributions Contributions() {
  TreeContributions contributions;
  for (int rank = 0; rank < world->size(); ++rank) {
    contributions.nodes.push_back({{.level = 0, .index = world->size() - 1 - rank}});
  }
  return contributions;
}

struct Results {
  std::vector<float> sum;
  std::vector<float> tree;
};

Results RoughResults(Communicator& communicator, size_t elements) {
  Results results{.sum = Rough(communicator.rank(), elements),
                  .tree = std::vector<float>(elements)};
  const std::vector<float> input = results.sum;
  Status status = communicator.AllReduce(RawOf(results.sum), DType::kF32, ReduceOp::kSum,
                                         {.group = {}, .tag = 1, .deadline = {}});
  EXPECT_TRUE(status.ok()) << status.ToString();
  const std::vector<std::span<const std::byte>> mine{RawOf(input)};
  status = communicator.ReduceTree(Contributions(), mine, RawOf(results.tree), DType::kF32,
                                   {.group = {}, .tag = 2, .deadline = {}});
  EXPECT_TRUE(status.ok()) << status.ToString();
  return results;
}

// The definition of the tree over the contributions [first, first + 2^level).
std::vector<float> Node(int level, int first, size_t elements) {
  if (level == 0) {
    return Rough(world->size() - 1 - first, elements);
  }
  const int half = 1 << (level - 1);
  std::vector<float> value = Node(level - 1, first, elements);
  if (first + half < world->size()) {
    const std::vector<float> other = Node(level - 1, first + half, elements);
    for (size_t i = 0; i < elements; ++i) {
      value[i] += other[i];
    }
  }
  return value;
}

TEST(MpiTest, BitsEqualTheDefinitionAndThoseOverSharedMemoryAndTcp) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  int levels = 0;
  while ((1 << levels) < world->size()) {
    ++levels;
  }
  for (const size_t elements : {size_t{1}, size_t{1003}, size_t{200001}}) {
    const Results results = RoughResults(*communicator, elements);
    EXPECT_EQ(results.tree, Node(levels, 0, elements));
    if (world->rank() != 0) {
      continue;  // The comparison below needs one process.
    }
    for (const Media& media : {Media::kShm, Media::kTcp}) {
      Cluster cluster(world->size(), media);
      cluster.Run(1, [&](int rank, Communicator& other) {
        const Results others = RoughResults(other, elements);
        EXPECT_EQ(others.tree, results.tree) << MediaName(media) << ", rank " << rank;
        // The order of a plain sum is that of the messages; shared memory has another.
        EXPECT_TRUE(media == Media::kShm || others.sum == results.sum) << "rank " << rank;
      });
    }
  }
  const Status barrier = communicator->Barrier({.group = {}, .tag = 9, .deadline = {}});
  EXPECT_TRUE(barrier.ok()) << barrier.ToString();
}

TEST(MpiTest, AbortEndsTheWaitsOfAllAndANewGroupForms) {
  {
    const auto communicator = Connected();
    ASSERT_NE(communicator, nullptr);
    ASSERT_TRUE(communicator->Barrier({}).ok());
    if (world->size() > 1) {
      if (world->rank() == 0) {
        communicator->Abort(AbortedError("enough"));
      }
      std::vector<float> never(1000);
      const Status status =
          communicator->Recv(world->rank() == 0 ? 1 : 0, 77, RawOf(never), false).Wait();
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
      EXPECT_NE(status.message().find("enough"), std::string::npos) << status.ToString();
    }
  }
  const auto next = Connected();
  ASSERT_NE(next, nullptr);
  const Status barrier = next->Barrier({});
  EXPECT_TRUE(barrier.ok()) << barrier.ToString();
}

TEST(MpiTest, AWaitEndsAtItsDeadlineAndTheGroupGoesOn) {
  const auto communicator = Connected();
  ASSERT_NE(communicator, nullptr);
  if (world->size() > 1) {
    const int peer = (world->rank() + 1) % world->size();
    std::vector<float> never(1000);
    const Status status = communicator->Recv(peer, 5, RawOf(never), false)
                              .Wait(After(std::chrono::milliseconds(100)));
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
    EXPECT_NE(status.message().find("rank-" + std::to_string(peer)), std::string::npos)
        << status.ToString();
  }
  const Status barrier = communicator->Barrier({});
  EXPECT_TRUE(barrier.ok()) << barrier.ToString();
}

// What stands ready for a peer goes with its group. Not measured where a sanitizer has the heap.
TEST(MpiTest, GroupsThatEndedLeaveNoMemoryBehind) {
  constexpr int kGroups = 40;
  const auto used = [] { return static_cast<int64_t>(::mallinfo2().uordblks); };
  const auto form = [] {
    const auto communicator = Connected();
    ASSERT_NE(communicator, nullptr);
    const Status status = communicator->Barrier({});
    ASSERT_TRUE(status.ok()) << status.ToString();
  };
  for (int i = 0; i < 5; ++i) {
    form();
  }
  const int64_t before = used();
  for (int i = 0; i < kGroups; ++i) {
    form();
  }
  // A piece of 64 KiB a peer and group would be four times as much.
  const int64_t most = kGroups * (world->size() - 1) * (int64_t{16} << 10) + (int64_t{256} << 10);
  const Time deadline = After(kAmple);
  while (used() - before > most && Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(used() - before, most);
}

}  // namespace
}  // namespace heddle::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // The ranks must draw alike: mpirun passes the environment on.
  const char* text = std::getenv("HEDDLE_TEST_SEED");
  heddle::comm::seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  heddle::metrics::Registry registry;
  auto world = heddle::comm::MpiWorld::Start(
      {.name = "", .silence_timeout = heddle::comm::kAmple, .metrics = &registry},
      heddle::After(heddle::comm::kAmple));
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
    return 1;
  }
  heddle::comm::world = world->get();
  if ((*world)->rank() != 0) {  // One voice; failures are printed by whoever sees them.
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    class Quiet : public testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& result) override {
        if (result.failed()) {
          std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(),
                       result.message());
        }
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Quiet);
  }
  int code = RUN_ALL_TESTS();
  const heddle::Status finished = (*world)->Finish(heddle::After(heddle::comm::kAmple));
  if (!finished.ok()) {
    std::fprintf(stderr, "%s\n", finished.ToString().c_str());
    code = 1;
  }
  return code;
}
