// What of their memory the members of a group show each other, and when they share none at all: by
// what this process, in which all of them run, has mapped.
#include <cstdio>
#include <cstring>

#include <gtest/gtest.h>

#include "comm/group/segment.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

/// Of shared memory files of so many bytes.
int Mappings(size_t bytes) {
  int count = 0;
  std::FILE* const file = std::fopen("/proc/self/maps", "r");
  for (char line[512]; std::fgets(line, sizeof(line), file) != nullptr;) {
    unsigned long begin = 0;
    unsigned long end = 0;
    count += std::strstr(line, "memfd:heddle") != nullptr &&
                     std::sscanf(line, "%lx-%lx", &begin, &end) == 2 && end - begin == bytes
                 ? 1
                 : 0;
  }
  std::fclose(file);
  return count;
}

void Meet(Communicator& communicator, uint64_t tag) {
  const Status status = communicator.Barrier({.group = {}, .tag = tag, .deadline = {}});
  ASSERT_TRUE(status.ok()) << status.ToString();
}

TEST(GroupSegment, ABroadcastMapsTheRootsBufferAndNobodyElses) {
  constexpr int kSize = 3;
  constexpr int kRoot = 1;
  constexpr size_t kBytes = 400'000;
  constexpr size_t kPage = 4096;
  const auto pages = [](int rank) { return (101 + 10 * static_cast<size_t>(rank)) * kPage; };
  Cluster cluster(kSize, Media::kShm);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const auto memory = cluster.endpoint(rank).AllocateShared(pages(rank));
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    const auto buffer = memory->bytes().first(kBytes);
    std::memset(buffer.data(), rank, buffer.size());
    const Status status = communicator.Broadcast(buffer, kRoot, {});
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(buffer.back(), std::byte{kRoot});
    Meet(communicator, 1);
    if (rank == 0) {
      EXPECT_EQ(Mappings(pages(kRoot)), kSize) << "its own, and one of each other member";
      EXPECT_EQ(Mappings(pages(0)), 1);
      EXPECT_EQ(Mappings(pages(2)), 1);
    }
    Meet(communicator, 2);
  });
}

TEST(GroupSegment, AnEmulatedLinkIsNotGoneAround) {
  constexpr int kSize = 2;
  const size_t segment = SegmentLayout(kSize).total_bytes;
  for (const double rate : {0.0, 1e9}) {
    Cluster cluster(kSize, Media::kShm, rate);
    cluster.Run(1, [&](int rank, Communicator& communicator) {
      std::vector<float> values(1000, 1);
      const Status status = communicator.AllReduce(RawOf(values), DType::kF32, ReduceOp::kSum, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(values.back(), kSize);
      Meet(communicator, 1);
      if (rank == 0) {
        EXPECT_EQ(Mappings(segment) > 0, rate == 0) << rate;
      }
      Meet(communicator, 2);
    });
  }
}

// One member's link is enough: what it says is heard by the member that makes the segment.
TEST(GroupSegment, AnEmulatedLinkOfOneMemberIsNotGoneAround) {
  constexpr int kSize = 3;
  const size_t segment = SegmentLayout(kSize).total_bytes;
  for (int slow = 0; slow < kSize; ++slow) {
    Cluster cluster(kSize, Media::kShm);
    cluster.endpoint(slow).SetLinkRate(1e9);
    cluster.Run(1, [&](int rank, Communicator& communicator) {
      Meet(communicator, 1);
      if (rank == 0) {
        EXPECT_EQ(Mappings(segment), 0) << slow;
      }
      Meet(communicator, 2);
    });
  }
}

}  // namespace
}  // namespace heddle::comm
