// How buffers are cut into shares, and what a gather of records may have.
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/collective/collective.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SegmentsTest, EvenSharesDifferByOneElementAtMost) {
  EXPECT_THAT(Segments::Even(10, 4).first, ElementsAre(0, 3, 6, 8, 10));
  EXPECT_THAT(Segments::Even(3, 4).first, ElementsAre(0, 1, 2, 3, 3));
  EXPECT_THAT(Segments::Even(0, 2).first, ElementsAre(0, 0, 0));
  EXPECT_THAT(Segments::Even(8, 1).first, ElementsAre(0, 8));
  const Segments segments = Segments::Even(10, 4);
  EXPECT_EQ(segments.total(), 10);
  EXPECT_EQ(segments.begin(2), 6);
  EXPECT_EQ(segments.count(1), 3);
}

Result<Segments> From(const std::vector<int64_t>& counts, int members) {
  return Segments::FromCounts(counts, members);
}

TEST(SegmentsTest, CountsFollowEachOther) {
  EXPECT_THAT(From({5, 0, 2}, 3)->first, ElementsAre(0, 5, 5, 7));
  EXPECT_EQ(From({1, 2}, 3).status().message(), "2 counts for a group of 3");
  EXPECT_EQ(From({1, 2, 3, 4}, 3).status().message(), "4 counts for a group of 3");
  EXPECT_EQ(From({1, -1}, 2).status().message(), "a share of -1 elements");
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 16;
  EXPECT_TRUE(From({kMax, 0}, 2).ok());
  EXPECT_TRUE(From({1, kMax - 1}, 2).ok());
  EXPECT_EQ(From({1, kMax}, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(From({kMax + 1, 0}, 2).status().code(), StatusCode::kInvalidArgument);
}

TEST(SegmentsTest, TheLargestAndTheSmallestShareStandAnywhere) {
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{9, 1, 4}, {1, 4, 9}, {4, 9, 1}, {4, 1, 9}}) {
    const ShareSizes sizes = SizesOf(*From(counts, 3), 8);
    EXPECT_EQ(sizes.total, 14 * 8);
    EXPECT_EQ(sizes.largest, 9 * 8);
    EXPECT_EQ(sizes.smallest, 1 * 8);
  }
  EXPECT_EQ(SizesOf(*From({5}, 1), 2).largest, 10);
  EXPECT_EQ(SizesOf(*From({5}, 1), 2).smallest, 10);
}

TEST(SegmentsTest, ACallHasThirtyTwoGibibytesAtMost) {
  constexpr size_t kMax = size_t{32} << 30;
  EXPECT_TRUE(CheckSize(0).ok());
  EXPECT_TRUE(CheckSize(kMax).ok());
  EXPECT_EQ(CheckSize(kMax + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(CheckSize(kMax + 1).message(), HasSubstr("the most is 34359738368"));
}

// Whoever has too much says so instead, and everyone is refused.
TEST(GatherTest, RecordsThatAreTooLargeInSumAreRefusedByAll) {
  constexpr size_t kLimit = size_t{64} << 20;
  for (const auto& [first, second] :
       {std::pair(size_t{0}, kLimit + 1), std::pair(kLimit + 1, size_t{0}),
        std::pair(kLimit / 2, kLimit / 2 + 100)}) {
    Cluster cluster(3, Media::kShm);
    cluster.Run(1, [&, first = first, second = second](int rank, Communicator& communicator) {
      const Bytes mine(rank == 0 ? first : rank == 2 ? second : 5);
      const auto records = communicator.AllGatherBytes(mine, {});
      EXPECT_EQ(records.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(records.status().message(), HasSubstr("larger than 67108864 bytes in sum"));
    });
  }
}

// Around the size that goes with the first message.
TEST(GatherTest, RecordsOfEachSizeComeWhole) {
  Cluster cluster(4, Media::kShm);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    uint64_t tag = 0;
    for (size_t size = 980; size <= 1030; ++size) {
      const auto size_of = [&](int member) { return member == 3 ? size : size_t{1}; };
      const Bytes mine(size_of(rank), static_cast<std::byte>(rank + 1));
      CollectiveOptions options;
      options.tag = ++tag;
      const auto records = communicator.AllGatherBytes(mine, options);
      ASSERT_TRUE(records.ok()) << records.status().ToString();
      for (int member = 0; member < 4; ++member) {
        ASSERT_EQ((*records)[static_cast<size_t>(member)],
                  Bytes(size_of(member), static_cast<std::byte>(member + 1)));
      }
    }
  });
}

}  // namespace
}  // namespace heddle::comm
