// Collectives in memory that a group shares: answers, bits, concurrent calls, disagreement, and
// what aborts, killed, stopped and scribbling members do.
#include "comm/group/segment.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <span>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/random.h"
#include "comm/communicator.h"
#include "comm/group/segment_slot.h"
#include "comm/transport/shared_memory.h"
#include "tests/comm/cluster.h"
#include "tests/comm/processes.h"
#include "tests/support/eventually.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;
using ::testing::HasSubstr;

/// The deadline of a call that something else is to end: a call that waits for it fails or hangs.
constexpr Duration kLong = std::chrono::minutes(10);
/// Of memory that was given back.
constexpr auto kMark = std::byte{0x5A};

/// Where a member's buffer lies.
enum class Memory { kPrivate, kShared, kMixed };

float ValueOf(uint64_t seed, int rank, int64_t i) {
  const auto words = Philox(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(i));
  return static_cast<float>(words[0]) * 0x1.0p-31F - 1.0F;
}

// The sum as the header promises it: in the order of the members.
float SumOf(uint64_t seed, int size, int64_t i) {
  float sum = ValueOf(seed, 0, i);
  for (int rank = 1; rank < size; ++rank) {
    sum += ValueOf(seed, rank, i);
  }
  return sum;
}

/// What each member of a group gives and what the sum is, computed once for all members' threads.
struct Numbers {
  Numbers(uint64_t seed, int size, int64_t count) : members(static_cast<size_t>(size)) {
    for (int64_t i = 0; i < count; ++i) {
      sum.push_back(SumOf(seed, size, i));
      for (int rank = 0; rank < size; ++rank) {
        members[static_cast<size_t>(rank)].push_back(ValueOf(seed, rank, i));
      }
    }
  }
  std::span<const float> Of(int rank, int64_t count) const {
    return std::span(members[static_cast<size_t>(rank)]).first(static_cast<size_t>(count));
  }
  std::span<const float> Sum(int64_t count, int64_t first = 0) const {
    return std::span(sum).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }

  std::vector<std::vector<float>> members;
  std::vector<float> sum;
};

/// The first element in which the two differ, and its place; an assertion an element takes longer
/// than the sums.
::testing::AssertionResult Same(std::span<const float> given, std::span<const float> wanted) {
  if (given.size() != wanted.size()) {
    return ::testing::AssertionFailure() << given.size() << " instead of " << wanted.size();
  }
  const auto [one, other] = std::mismatch(given.begin(), given.end(), wanted.begin());
  if (one == given.end()) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << *one << " instead of " << *other << " at "
                                       << one - given.begin() << " of " << given.size();
}

/// The mappings of shared memory of a size in this process.
std::vector<std::byte*> MappingsOf(size_t bytes) {
  std::vector<std::byte*> found;
  std::FILE* const file = std::fopen("/proc/self/maps", "r");
  for (char line[512]; std::fgets(line, sizeof(line), file) != nullptr;) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::strstr(line, "memfd:heddle") != nullptr &&
        std::sscanf(line, "%lx-%lx", &begin, &end) == 2 && end - begin == bytes) {
      found.push_back(reinterpret_cast<std::byte*>(begin));
    }
  }
  std::fclose(file);
  return found;
}

/// Looks into the segments of a group of so many members that this process has.
template <typename Look>
bool AnySlot(int members, const Look& look) {
  const SegmentLayout layout(members);
  for (std::byte* const segment : MappingsOf(layout.total_bytes)) {
    for (int slot = 0; slot < kSegmentSlots; ++slot) {
      std::byte* const header = segment + static_cast<size_t>(slot) * layout.slot_bytes;
      if (look(*reinterpret_cast<SegmentSlotHeader*>(header),
               reinterpret_cast<SegmentBlock*>(header + sizeof(SegmentSlotHeader)))) {
        return true;
      }
    }
  }
  return false;
}

/// Whether the member is in its slot's call of that number and tag.
bool HasAnnounced(int members, int member, uint64_t call, uint64_t tag) {
  return AnySlot(members, [&](const SegmentSlotHeader&, const SegmentBlock* blocks) {
    return blocks[member].lines[call % 2].word.load() == SegmentWord(call, tag);
  });
}

/// Whether as many members sleep in one slot.
bool Sleep(int members, uint32_t sleepers) {
  return AnySlot(members, [&](const SegmentSlotHeader& header, const SegmentBlock*) {
    return header.sleepers.load() == sleepers;
  });
}

/// A buffer of one or the other kind.
class Buffer {
 public:
  Buffer(Endpoint& endpoint, bool shared, int64_t count, int64_t shift = 0) {
    const auto room = static_cast<size_t>(count + shift) + 1;
    if (shared) {
      auto memory = endpoint.AllocateShared(room * sizeof(float));
      EXPECT_TRUE(memory.ok()) << memory.status().ToString();
      shared_ = *memory;
      data_ = reinterpret_cast<float*>(shared_.bytes().data()) + shift;
    } else {
      private_.resize(room);
      data_ = private_.data() + shift;
    }
    count_ = count;
  }
  float& operator[](int64_t i) { return data_[i]; }
  std::span<float> Elements() { return {data_, static_cast<size_t>(count_)}; }
  std::span<std::byte> Raw() { return std::as_writable_bytes(Elements()); }

 private:
  SharedBuffer shared_;
  std::vector<float> private_;
  float* data_ = nullptr;
  int64_t count_ = 0;
};

struct Case {
  Memory memory;
  int size;
};

class GroupSegmentTest : public ::testing::TestWithParam<Case> {
 protected:
  static bool SharedAt(int rank) {
    return GetParam().memory == Memory::kShared ||
           (GetParam().memory == Memory::kMixed && rank % 2 == 0);
  }
};

TEST_P(GroupSegmentTest, AllReduceHasTheBitsOfTheScalarSumInTheOrderOfMembers) {
  const int size = GetParam().size;
  Cluster cluster(size, Media::kShm);
  // Around the sizes at which the way changes: a line, a small stage, blocks of a stage.
  std::vector<int64_t> counts{1,    2,    3,     9,     10,    11,     255,   1001,
                              4096, 8191, 16384, 16385, 40007, 262144, 300001};
  if (size == 2 || size == 4) {
    counts.push_back(testing::Scaled(500'003, 500'003, 2'500'003));
  }
  const std::vector<Numbers> numbers{{1, size, counts.back()}, {2, size, counts.back()}};
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    for (const int64_t count : counts) {
      // Twice in the same memory: what is offered once is used again.
      Buffer buffer(cluster.endpoint(rank), SharedAt(rank), count, rank % 3);
      for (const Numbers& of_seed : numbers) {
        std::ranges::copy(of_seed.Of(rank, count), buffer.Elements().begin());
        const Status status = communicator.AllReduce(buffer.Raw(), DType::kF32, ReduceOp::kSum, {});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_TRUE(Same(buffer.Elements(), of_seed.Sum(count)));
      }
    }
  });
}

// 0, s, 8 s, 1, and so on; the first one's is 0 or s.
std::vector<int64_t> UnevenShares(int size, int64_t scale) {
  std::vector<int64_t> counts;
  for (int i = 0; i < size; ++i) {
    counts.push_back(i % 4 == 0 ? 0 : i % 4 == 1 ? scale : i % 4 == 2 ? 8 * scale : 1);
  }
  counts[0] = scale % 2 == 0 ? 0 : scale;
  return counts;
}

TEST_P(GroupSegmentTest, UnevenScatterGatherAndBroadcast) {
  const int size = GetParam().size;
  const std::vector<int64_t> scales{1, 3, 1000, testing::Scaled(20000, 20000, 70000),
                                    testing::Scaled(100000, 100000, 400000) / size};
  int64_t most = 0;
  for (const int64_t scale : scales) {
    const auto counts = UnevenShares(size, scale);
    most = std::max(most, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  }
  const Numbers summed(3, size, most);
  const Numbers broadcast(4, size, most);
  Cluster cluster(size, Media::kShm);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    for (const int64_t scale : scales) {
      const auto counts = UnevenShares(size, scale);
      const int64_t first = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      const int64_t own = counts[static_cast<size_t>(rank)];
      Buffer input(cluster.endpoint(rank), SharedAt(rank), total);
      Buffer share(cluster.endpoint(rank), false, own);
      std::ranges::copy(summed.Of(rank, total), input.Elements().begin());
      Status status = communicator.ReduceScatter(input.Raw(), share.Raw(), counts, DType::kF32,
                                                 ReduceOp::kSum, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(Same(share.Elements(), summed.Sum(own, first)));
      ASSERT_TRUE(Same(input.Elements(), summed.Of(rank, total))) << "inputs stay";
      Buffer whole(cluster.endpoint(rank), SharedAt(rank), total);
      status = communicator.AllGather(share.Raw(), whole.Raw(), counts, DType::kF32, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(Same(whole.Elements(), summed.Sum(total)));
      for (int root = 0; root < size; ++root) {
        std::ranges::fill(whole.Elements(), 0.0F);
        if (rank == root) {
          std::ranges::copy(broadcast.Of(root, total), whole.Elements().begin());
        }
        status = communicator.Broadcast(whole.Raw(), root, {});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_TRUE(Same(whole.Elements(), broadcast.Of(root, total))) << "from " << root;
      }
    }
  });
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
    for (const int size : {1, 2, 3, 4, 5, 8}) {
      cases.push_back({memory, size});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Memory,
                         GroupSegmentTest,
                         ::testing::ValuesIn(AllCases()),
                         [](const auto& parameter) {
                           const Memory memory = parameter.param.memory;
                           return std::string(memory == Memory::kPrivate  ? "Private"
                                              : memory == Memory::kShared ? "Shared"
                                                                          : "Mixed") +
                                  std::to_string(parameter.param.size);
                         });

TEST(GroupSegment, LargeBuffers) {
  Cluster cluster(2, Media::kShm);
  constexpr int64_t kCount = (64 << 20) / 4;
  for (const bool shared : {false, true}) {
    cluster.Run(shared ? 2 : 1, [&](int rank, Communicator& communicator) {
      Buffer buffer(cluster.endpoint(rank), shared, kCount);
      for (int64_t i = 0; i < kCount; ++i) {
        buffer[i] = static_cast<float>((i + rank) % 1000);
      }
      const Status status = communicator.AllReduce(buffer.Raw(), DType::kF32, ReduceOp::kSum, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (int64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(buffer[i], static_cast<float>(i % 1000 + (i + 1) % 1000));
      }
      EXPECT_GE(communicator.BytesSent()[static_cast<size_t>(1 - rank)], 4 * kCount);
    });
  }
}

// The other ranks start their calls in orders of their own; more calls at once than slots.
TEST(GroupSegment, ConcurrentCallsMeetByTheirTags) {
  constexpr int kSize = 3;
  constexpr int kThreads = 7;
  Cluster cluster(kSize, Media::kShm);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint64_t round = 0; round < 150; ++round) {
          const auto own = static_cast<uint64_t>((thread + rank * 3) % kThreads);
          // Few tags, used again and again; sizes of every way.
          const int64_t count = std::array<int64_t, 4>{1, 700, 30000, 90000}[(own + round) % 4];
          std::vector<float> buffer(static_cast<size_t>(count));
          for (int64_t i = 0; i < count; ++i) {
            buffer[static_cast<size_t>(i)] =
                static_cast<float>(static_cast<int64_t>(own * 31 + round) + i % 17 + rank);
          }
          const Status status = communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum,
                                                       {.group = {}, .tag = own, .deadline = {}});
          ASSERT_TRUE(status.ok()) << status.ToString();
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(buffer[static_cast<size_t>(i)],
                      static_cast<float>(3 * (static_cast<int64_t>(own * 31 + round) + i % 17) + 3))
                << own << " " << round << " " << i;
          }
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  });
}

// At every way of the data: what announces the sizes is all that keeps members within their memory.
TEST(GroupSegment, SizesThatDisagreeAreRefusedByAll) {
  Cluster cluster(3, Media::kShm);
  int64_t generation = 0;
  for (const size_t count : {size_t{4}, size_t{5000}, size_t{100000}}) {
    for (const bool shared : {false, true}) {
      cluster.Run(++generation, [&](int rank, Communicator& communicator) {
        Buffer good(cluster.endpoint(rank), shared, static_cast<int64_t>(count));
        ASSERT_TRUE(communicator.AllReduce(good.Raw(), DType::kF32, ReduceOp::kSum, {}).ok());
        Buffer bad(cluster.endpoint(rank), shared,
                   static_cast<int64_t>(count) + (rank == 1 ? 1 : 0));
        const Status status = communicator.AllReduce(bad.Raw(), DType::kF32, ReduceOp::kSum, {});
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(status.message(), HasSubstr("worker-0 and worker-1 call all-reduce with"));
      });
    }
  }
}

// What a member in a call by messages sees of another's announcement, here put into the segment by
// hand.
TEST(GroupSegment, AnAnnouncementOfTheSameOrdinalAndAnotherSignatureIsAConflict) {
  const std::vector<int> ranks{3, 5};
  const size_t bytes = SegmentLayout(2).total_bytes;
  const auto memory = MakeSharedMemory(bytes);
  ASSERT_TRUE(memory.ok());
  auto mapping = Mapping::Of(memory->get(), bytes, true);
  const auto peers_mapping = Mapping::Of(memory->get(), bytes, true);
  ASSERT_TRUE(mapping.ok() && peers_mapping.ok());
  const GroupSegment group(ranks, 0, {"a", "b"}, {nullptr, nullptr}, nullptr, *std::move(mapping));
  const uint32_t own = EncodeSignature({.kind = CallKind::kAllToAll});
  const uint32_t other = EncodeSignature({.kind = CallKind::kBarrier});
  const CallNumber number{.tag = 7, .space = SpaceOf(own), .ordinal = 3, .group = 1};
  EXPECT_FALSE(group.FindConflict(number).has_value());

  // The second slot's next call is its first.
  auto* const block =
      reinterpret_cast<SegmentBlock*>(peers_mapping->base() + SegmentLayout(2).slot_bytes +
                                      sizeof(SegmentSlotHeader)) +
      1;
  SegmentLine& line = block->lines[1];
  const auto announce = [&](uint64_t call, uint64_t tag, uint32_t signature, uint64_t ordinal) {
    line.call =
        SegmentCallWord({.tag = tag, .space = SpaceOf(signature), .ordinal = ordinal, .group = 1});
    line.word = SegmentWord(call, tag);
  };
  announce(1, 7, other, 3);
  const auto conflict = group.FindConflict(number);
  ASSERT_TRUE(conflict.has_value());
  EXPECT_EQ(conflict->rank, 5);
  EXPECT_EQ(conflict->signature, other);
  announce(1, 7, other, 4);  // It is ahead.
  EXPECT_FALSE(group.FindConflict(number).has_value());
  announce(1, 7, own, 3);
  EXPECT_FALSE(group.FindConflict(number).has_value());
  announce(1, 8, other, 3);
  EXPECT_FALSE(group.FindConflict(number).has_value());
  announce(3, 7, other, 3);  // Nothing of this call.
  EXPECT_FALSE(group.FindConflict(number).has_value());
  announce(1, 7, other, 0);  // Not counted.
  EXPECT_FALSE(group.FindConflict({.tag = 7, .space = SpaceOf(own), .ordinal = 0, .group = 1}));
}

// Its end ends the wait of another member, which has more time.
TEST(GroupSegment, AWaitEndsAtItsDeadlineAndNamesTheMember) {
  constexpr int kSize = 3;
  Cluster cluster(kSize, Media::kShm);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    std::vector<float> first(1, 1.0F);
    ASSERT_TRUE(communicator.AllReduce(RawOf(first), DType::kF32, ReduceOp::kSum, {}).ok());
    if (rank != 2) {
      EXPECT_TRUE(rank == 1 || Eventually([] { return HasAnnounced(kSize, 1, 2, 1); }));
      std::vector<float> buffer(100000);
      const Time deadline = After(rank == 0 ? milliseconds(100) : kLong);
      const Status status = communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum,
                                                   {.group = {}, .tag = 1, .deadline = deadline});
      if (rank == 0) {
        EXPECT_GE(Now(), deadline);
        EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
        EXPECT_THAT(status.message(), HasSubstr("worker-2"));
      } else {
        EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
        EXPECT_THAT(status.message(), HasSubstr("worker-0 gave up"));
      }
    }
    EXPECT_TRUE(communicator.Barrier({.group = {}, .tag = 2, .deadline = After(kLong)}).ok());
  });
}

/// How often a thread of this process has gone to sleep.
int64_t SleepsOf(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  const std::string name = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) {
      return std::stoll(line.substr(name.size()));
    }
  }
  return 0;
}

// Idle waits must not burn a core: the member sleeps, and looks rarely.
TEST(GroupSegment, AWaitingMemberSleeps) {
  Cluster cluster(2, Media::kShm);
  std::atomic<pid_t> sleeper = 0;
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    std::vector<float> buffer(1, 1.0F);
    ASSERT_TRUE(communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum, {}).ok());
    if (rank == 1) {
      ASSERT_TRUE(Eventually([&] { return sleeper.load() != 0; }));
      const int64_t before = SleepsOf(sleeper.load());
      EXPECT_TRUE(Eventually([&] { return SleepsOf(sleeper.load()) > before + 10; }));
    }
    const Time began = Now();
    const int64_t before = SleepsOf(::gettid());
    sleeper.store(rank == 0 ? ::gettid() : sleeper.load());
    ASSERT_TRUE(communicator
                    .AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum,
                               {.group = {}, .tag = 0, .deadline = After(kLong)})
                    .ok());
    if (rank == 0) {  // A slow machine makes the sleeps longer, not more.
      EXPECT_LT(SleepsOf(::gettid()) - before, 2 * ((Now() - began) / kSegmentSlice) + 10);
    }
  });
}

TEST(GroupSegment, AMemberThatLeavesAfterItsLastCallDisturbsNobody) {
  Cluster cluster(3, Media::kShm);
  const auto generations = testing::Scaled<int64_t>(10, 10, 30);
  for (int64_t generation = 1; generation <= generations; ++generation) {
    cluster.Run(generation, [](int /*rank*/, Communicator& communicator) {
      for (const size_t count : {size_t{1}, size_t{200000}}) {
        std::vector<float> buffer(count, 1.0F);
        const Status status =
            communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum, {});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(buffer.back(), 3.0F);
      }
      std::vector<float> buffer(100000);
      const Status status = communicator.Broadcast(RawOf(buffer), 1, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
    });
  }
}

// In the middle of calls that follow each other, in other memory and at another place each time.
TEST(GroupSegment, AnAbortEndsEveryCall) {
  Cluster cluster(4, Media::kShm);
  for (int64_t generation = 1; generation <= 5; ++generation) {
    std::atomic<int64_t> calls = 0;
    cluster.Run(generation, [&](int rank, Communicator& communicator) {
      Buffer buffer(cluster.endpoint(rank), generation % 2 == 0, 3'000'000);
      std::thread aborter;
      if (rank == 1) {
        aborter = std::thread([&] {
          EXPECT_TRUE(Eventually([&] { return calls.load() > 4 * generation; }));
          communicator.Abort(UnavailableError("the plan changed"));
        });
      }
      Status status;
      for (int64_t i = 0; status.ok(); ++i) {
        const auto bytes = i % 3 == 0 ? buffer.Raw().first(64) : buffer.Raw();
        status = communicator.AllReduce(bytes, DType::kF32, ReduceOp::kMax,
                                        {.group = {}, .tag = 0, .deadline = After(kLong)});
        calls.fetch_add(1);
      }
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr("the plan changed"));
      if (aborter.joinable()) {
        aborter.join();
      }
    });
  }
}

TEST(GroupSegment, AnAbortEndsTheSleepOfAllWhoWait) {
  constexpr int kSize = 4;
  Cluster cluster(kSize, Media::kShm);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
    if (rank == 1) {
      EXPECT_TRUE(Eventually([] { return Sleep(kSize, kSize - 1); }));
      communicator.Abort(UnavailableError("the plan changed"));
      return;
    }
    const Status status = communicator.Barrier({.group = {}, .tag = 2, .deadline = After(kLong)});
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("the plan changed"));
  });
}

TEST(GroupSegment, GenerationsLeaveNothingBehind) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto mappings = [] {
    int count = 0;
    std::FILE* const file = std::fopen("/proc/self/maps", "r");
    for (char line[512]; std::fgets(line, sizeof(line), file) != nullptr;) {
      count += std::strstr(line, "memfd:heddle") != nullptr ? 1 : 0;
    }
    std::fclose(file);
    return count;
  };
  Cluster cluster(3, Media::kShm);
  const auto before = descriptors();
  for (int64_t generation = 1; generation <= 8; ++generation) {
    cluster.Run(generation, [&](int rank, Communicator& communicator) {
      Buffer buffer(cluster.endpoint(rank), true, 100000);
      ASSERT_TRUE(communicator.AllReduce(buffer.Raw(), DType::kF32, ReduceOp::kSum, {}).ok());
    });
  }
  EXPECT_TRUE(Eventually([&] { return descriptors() <= before && mappings() == 0; }));
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(mappings(), 0);
}

// No descriptors are left when the members hand over theirs: what they bring is copied, and each
// says whose and why.
TEST(GroupSegment, ABufferThatCannotBeMappedIsCopiedAndSaid) {
  if (kSanitized) {
    GTEST_SKIP() << kSanitizerNeedsDescriptors;
  }
  constexpr int kSize = 3;
  Cluster cluster(kSize, Media::kShm);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ::testing::internal::CaptureStderr();
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    Buffer buffer(cluster.endpoint(rank), true, 100000);
    const auto barrier = [&](uint64_t tag) {
      const Status status = communicator.Barrier({.group = {}, .tag = tag, .deadline = {}});
      ASSERT_TRUE(status.ok()) << status.ToString();
    };
    barrier(1);
    if (rank == 0) {
      const int lowest_free = ::dup(STDERR_FILENO);
      ::close(lowest_free);
      const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
      EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    barrier(2);
    for (int round = 0; round < 3; ++round) {
      for (int64_t i = 0; i < 100000; ++i) {
        buffer[i] = static_cast<float>(rank + i % 7);
      }
      const Status status = communicator.AllReduce(buffer.Raw(), DType::kF32, ReduceOp::kSum, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (int64_t i = 0; i < 100000; ++i) {
        ASSERT_EQ(buffer[i], static_cast<float>(3 + 3 * (i % 7))) << i;
      }
    }
    barrier(3);
    if (rank == 0) {
      ::setrlimit(RLIMIT_NOFILE, &before);
    }
  });
  ::setrlimit(RLIMIT_NOFILE, &before);
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_THAT(log, HasSubstr("a shared buffer of " + Cluster::Name(rank)));
    double refused = 0;
    for (const auto& family : cluster.registry(rank).Collect()) {
      for (const auto& sample : family.samples) {
        if (family.name == "heddle_comm_refused_buffers_total") {
          EXPECT_EQ(sample.labels.at("reason"), StatusCodeName(StatusCode::kResourceExhausted));
          refused += sample.value;
        }
      }
    }
    EXPECT_EQ(refused, kSize - 1) << Cluster::Name(rank);  // Once a buffer, not once a call.
  }
  EXPECT_THAT(log, HasSubstr("ulimit -n"));
}

// Worker 1 gives up a call that the others complete. In the next one it is broadcast so, instead of
// waiting for a slot that it cannot enter.
TEST(GroupSegment, WhoGaveUpACallThatTheOthersCompletedIsNotLeftWaiting) {
  constexpr int kSize = 3;
  // Where the others do not complete it within their grace, they give it up, too: once more.
  constexpr int kMaxAttempts = 50;
  bool shown = false;
  for (int attempt = 1; attempt <= kMaxAttempts && !shown; ++attempt) {
    Cluster cluster(kSize, Media::kShm);
    std::atomic<bool> given_up = false;
    std::atomic<int> completed = 0;
    const uint64_t tag = 10 * static_cast<uint64_t>(attempt);
    cluster.Run(attempt, [&](int rank, Communicator& communicator) {
      ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = tag, .deadline = {}}).ok());
      if (rank == 1) {  // The first member has chosen the slot.
        EXPECT_TRUE(Eventually([&] { return HasAnnounced(kSize, 0, 2, tag + 1); }));
      }
      while (rank == 2 && !given_up.load()) {
        std::this_thread::yield();
      }
      const Time deadline = After(rank == 1 ? milliseconds(50) : kLong);
      Status status = communicator.Barrier({.group = {}, .tag = tag + 1, .deadline = deadline});
      if (rank == 1) {
        EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
        given_up.store(true);
      } else if (status.ok()) {
        completed.fetch_add(1);
      }
      status = communicator.Barrier({.group = {}, .tag = tag + 2, .deadline = After(seconds(20))});
      if (rank == 1 && completed.load() == kSize - 1) {
        EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
        EXPECT_THAT(status.message(), HasSubstr("worker-1 gave up"));
        shown = true;
      }
    });
  }
  EXPECT_TRUE(shown);
}

/// The impatient of the first three members give up forming a group that the last one does not come
/// to, and stay until all of them have: the end of one must not end another's wait before its time.
void GiveUpForming(const std::vector<int>& impatient, Duration patience) {
  constexpr int kSize = 4;
  Cluster cluster(kSize, Media::kShm);
  std::atomic<size_t> ended = 0;
  std::atomic<int> joined = 0;
  const auto all_ended = [&] { return ended.load() == impatient.size(); };
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    if (rank == kSize - 1) {
      EXPECT_TRUE(Eventually(all_ended));
      return;
    }
    // The first member hears from the others that they are there.
    std::thread watch;
    if (rank == 0) {
      EXPECT_TRUE(Eventually([&] { return joined.load() == 2; }));
    } else {
      watch = std::thread([&] {
        EXPECT_TRUE(Eventually([&] { return communicator.BytesSent()[0] > 0; }));
        joined.fetch_add(1);
      });
    }
    const bool is_impatient = std::ranges::find(impatient, rank) != impatient.end();
    const Status status = communicator.Barrier(
        {.group = {}, .tag = 77, .deadline = After(is_impatient ? patience : kLong)});
    if (is_impatient) {
      ended.fetch_add(1);
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr("forming the group"));
      EXPECT_THAT(status.message(), HasSubstr("worker-3"));
      EXPECT_THAT(status.message(), Not(HasSubstr("tag")));
      EXPECT_TRUE(Eventually(all_ended));
    }
    if (watch.joinable()) {
      watch.join();
    }
  });
}

TEST(GroupSegment, WhoseAbsenceKeepsAGroupFromFormingIsNamed) {
  GiveUpForming({0}, milliseconds(300));
  GiveUpForming({1, 2}, seconds(2));  // The first member has told them whom it waits for.
}

/// What the others read at the same time; word by word, which is no data race.
void Scribble(std::byte* place, uint64_t word, size_t words = 1) {
  for (size_t i = 0; i < words; ++i) {
    std::atomic_ref(reinterpret_cast<uint64_t*>(place)[i]).store(word, std::memory_order_relaxed);
  }
}

struct Report {
  int code = 0;
  int damaged = 0;
  char message[200] = {};
};

Report ReportOf(const Status& status) {
  Report report;
  report.code = static_cast<int>(status.code());
  std::strncpy(report.message, status.message().c_str(), sizeof(report.message) - 1);
  return report;
}

// Collectives until one fails.
Report RunUntilFailure(Endpoint& endpoint,
                       Communicator& group,
                       bool shared,
                       Duration patience,
                       const std::function<void(uint64_t calls)>& after_each = {}) {
  Buffer buffer(endpoint, shared, 500'000);
  Status status;
  for (uint64_t i = 0; status.ok(); ++i) {
    const auto bytes = i % 2 == 0 ? buffer.Raw() : buffer.Raw().first(4000);
    status = group.AllReduce(bytes, DType::kF32, ReduceOp::kMax,
                             {.group = {}, .tag = i, .deadline = After(patience)});
    if (after_each) {
      after_each(i + 1);
    }
  }
  return ReportOf(status);
}

TEST(GroupSegmentProcesses, AKilledMemberEndsTheCallsOfAllAndIsNamed) {
  constexpr int kSize = 4;
  constexpr int kVictim = 1;
  for (uint64_t attempt = 0; attempt < 4; ++attempt) {
    Processes processes(
        kSize, Media::kShm, [&](int, Endpoint& endpoint, Communicator& group, int out) {
          const Report report =
              RunUntilFailure(endpoint, group, attempt % 2 == 0, kLong, [&](uint64_t calls) {
                if (calls == 10 + 7 * attempt) {
                  Processes::Write(out, 1);
                }
              });
          group.Abort(UnavailableError("{}", report.message));
          Processes::Write(out, report);
          return 0;
        });
    for (int rank = 0; rank < kSize; ++rank) {
      processes.Read<int>(rank);
    }
    processes.Signal(kVictim, SIGKILL);
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != kVictim) {
        const auto report = processes.Read<Report>(rank);
        EXPECT_TRUE(report.code == static_cast<int>(StatusCode::kUnavailable) ||
                    report.code == static_cast<int>(StatusCode::kAborted))
            << report.message;
        EXPECT_THAT(report.message, HasSubstr(Cluster::Name(kVictim)));
      }
    }
  }
}

/// Whether a buffer is no longer full of the byte that its owner gave it.
int IsDamaged(Buffer& buffer) {
  return std::ranges::all_of(buffer.Raw(), [](std::byte b) { return b == kMark; }) ? 0 : 1;
}

// A member is stopped somewhere in a call on shared memory. The others give up at their deadline
// and use their memory for something else; what the stopped one does when it goes on reaches none
// of it.
TEST(GroupSegmentProcesses, AStoppedMemberWritesNothingLate) {
  constexpr int kSize = 3;
  constexpr int kVictim = 2;
  const auto attempts = testing::Scaled<uint64_t>(3, 3, 6);
  for (uint64_t attempt = 0; attempt < attempts; ++attempt) {
    Processes processes(
        kSize, Media::kShm, [&](int rank, Endpoint& endpoint, Communicator& group, int out) {
          Buffer buffer(endpoint, true, 4'000'000);
          Status status;
          for (uint64_t i = 0; status.ok(); ++i) {
            std::fill_n(&buffer[0], 1000, static_cast<float>(rank));
            const Duration patience = i <= attempt ? kLong : milliseconds(300);
            status = group.AllReduce(buffer.Raw(), DType::kF32, ReduceOp::kMax,
                                     {.group = {}, .tag = i, .deadline = After(patience)});
            if (i == attempt) {
              Processes::Write(out, 1);
            }
          }
          Report report = ReportOf(status);
          std::ranges::fill(buffer.Raw(), kMark);
          Processes::Write(out, report);
          Processes::StayUntilDismissed();
          report.damaged = IsDamaged(buffer);
          Processes::Write(out, report);
          return 0;
        });
    for (int rank = 0; rank < kSize; ++rank) {
      processes.Read<int>(rank);
    }
    processes.Signal(kVictim, SIGSTOP);
    for (const int rank : {0, 1}) {
      const auto report = processes.Read<Report>(rank);
      EXPECT_TRUE(report.code == static_cast<int>(StatusCode::kDeadlineExceeded) ||
                  report.code == static_cast<int>(StatusCode::kAborted))
          << report.message;
    }
    processes.Signal(kVictim, SIGCONT);
    EXPECT_NE(processes.Read<Report>(kVictim).code, 0) << "its call has ended";
    processes.Dismiss();
    for (const int rank : {0, 1}) {
      EXPECT_EQ(processes.Read<Report>(rank).damaged, 0) << "attempt " << attempt;
    }
  }
}

// A member damages the stream to another one in the middle of a write to its memory. It lives, so
// what it writes later must not reach a buffer that was given back.
TEST(GroupSegmentProcesses, AMemberThatIsLostAndLivesWritesNothingLate) {
  constexpr size_t kPage = 4096;
  constexpr size_t kRing = size_t{512} << 10;
  constexpr int64_t kCount = 500'000;
  constexpr size_t kBytes = (kCount + 1) * sizeof(float);
  constexpr size_t kRegion = (kBytes + kPage - 1) / kPage * kPage;
  constexpr int kSize = 2;
  constexpr uint64_t kLie = 0x7F7F7F7F7F7F7F7F;
  Processes processes(
      kSize, Media::kShm, [&](int rank, Endpoint& endpoint, Communicator& group, int out) {
        Buffer buffer(endpoint, true, kCount);
        Status status = group.AllReduce(buffer.Raw(), DType::kF32, ReduceOp::kMax, {});
        if (!status.ok()) {
          return 1;
        }
        const auto pairs = [] { return MappingsOf(2 * (kPage + kRing)); };
        if (rank == 1) {
          // The other has begun its next call.
          EXPECT_TRUE(Eventually([] { return HasAnnounced(kSize, 0, 2, 1); }));
          AnySlot(kSize, [&](const SegmentSlotHeader&, SegmentBlock* blocks) {
            blocks[rank].writing.store(1);
            return false;
          });
          for (std::byte* const pair : pairs()) {
            // The positions of one direction, then of the other.
            Scribble(pair + kPage + kRing, kLie, 16);
            Scribble(pair, kLie, 16);
          }
          ::raise(SIGSTOP);
          for (std::byte* const region : MappingsOf(kRegion)) {
            Scribble(region, 0, kBytes / sizeof(uint64_t));
          }
          Processes::Write(out, 1);
          Processes::StayUntilDismissed();
          return 0;
        }
        std::thread talker([&] {  // Behind the damage.
          EXPECT_TRUE(Eventually([&] {
            return std::ranges::all_of(pairs(), [&](std::byte* pair) {
              return std::atomic_ref(reinterpret_cast<uint64_t*>(pair)[15]).load() == kLie;
            });
          }));
          const std::vector<float> word(1);
          group.Send(1, 5, RawOf(word), false).Wait().IgnoreError("it finds the damage");
        });
        status = group.AllReduce(buffer.Raw(), DType::kF32, ReduceOp::kMax,
                                 {.group = {}, .tag = 1, .deadline = After(kLong)});
        std::ranges::fill(buffer.Raw(), kMark);
        talker.join();
        Report report = ReportOf(status);
        Processes::Write(out, report);
        Processes::StayUntilDismissed();
        report.damaged = IsDamaged(buffer);
        Processes::Write(out, report);
        return 0;
      });
  const auto report = processes.Read<Report>(0);
  EXPECT_EQ(report.code, static_cast<int>(StatusCode::kUnavailable)) << report.message;
  EXPECT_THAT(report.message, HasSubstr("worker-1 was lost: ring position out of range"));
  processes.WaitUntilStopped(1);
  processes.Signal(1, SIGCONT);
  processes.Read<int>(1);
  processes.Dismiss();
  EXPECT_EQ(processes.Read<Report>(0).damaged, 0);
}

// A member overwrites everything that it shares with the others. They get wrong sums or errors, and
// go on living.
TEST(GroupSegmentProcesses, AScribblingMemberBreaksNobody) {
  constexpr int kSize = 3;
  for (const uint64_t seed : testing::TestSeeds(4)) {
    HEDDLE_TRACE_SEED(seed);
    Processes processes(
        kSize, Media::kShm, [&](int rank, Endpoint& endpoint, Communicator& group, int out) {
          if (rank != 2) {
            const Report report = RunUntilFailure(endpoint, group, true, milliseconds(500));
            Processes::Write(out, report);
            return 0;
          }
          Buffer buffer(endpoint, true, 500'000);
          for (uint64_t i = 0; i < 6; ++i) {
            const auto bytes = i % 2 == 0 ? buffer.Raw() : buffer.Raw().first(4000);
            group
                .AllReduce(bytes, DType::kF32, ReduceOp::kMax,
                           {.group = {}, .tag = i, .deadline = {}})
                .IgnoreError("what follows is worse");
          }
          std::vector<std::pair<uintptr_t, uintptr_t>> regions;
          std::FILE* const file = std::fopen("/proc/self/maps", "r");
          for (char line[512]; std::fgets(line, sizeof(line), file) != nullptr;) {
            unsigned long begin = 0;
            unsigned long end = 0;
            if (std::strstr(line, "memfd:heddle") != nullptr &&
                std::sscanf(line, "%lx-%lx", &begin, &end) == 2) {
              regions.emplace_back(begin, end);
            }
          }
          std::fclose(file);
          Random random(seed);
          for (int round = 0; round < 200; ++round) {
            for (const auto& [begin, end] : regions) {
              // Words all over, most of them in the first pages, where control words lie.
              for (int i = 0; i < 2000; ++i) {
                const uint64_t size =
                    i % 2 == 0 ? std::min<uint64_t>(end - begin, 8192) : end - begin;
                const uint64_t word = random.Below(4) == 0 ? random.Below(8) : random.Next();
                Scribble(reinterpret_cast<std::byte*>(begin + random.Below(size / 8) * 8), word);
              }
            }
          }
          return 0;
        });
    for (const int rank : {0, 1}) {
      const auto report = processes.Read<Report>(rank);
      EXPECT_NE(report.code, 0);
      EXPECT_EQ(processes.Wait(rank), 0) << report.message;
    }
  }
}

}  // namespace
}  // namespace heddle::comm
