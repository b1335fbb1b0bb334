// Costs against hand-computed cases of Hockney's model.
#include "comm/cost/cost.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

LinkTable Uniform(int size, double latency, double rate) {
  LinkTable links(size);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      links.At(from, to) = {
          .latency_seconds = latency, .bytes_per_second = rate, .transport = "tcp"};
    }
  }
  return links;
}

TEST(CostTest, SmallAllReducesGoDirectLargeOnesAroundTheRing) {
  const LinkTable links = Uniform(4, 1e-4, 1e9);
  const std::vector<int> group{0, 1, 2, 3};
  EXPECT_EQ(ChooseAllReduce(links, group, 4), AllReduceAlgorithm::kDirect);
  EXPECT_EQ(ChooseAllReduce(links, group, 64 << 20), AllReduceAlgorithm::kRing);
  EXPECT_EQ(AllReduceAlgorithmName(AllReduceAlgorithm::kDirect), "direct");
  EXPECT_EQ(AllReduceAlgorithmName(AllReduceAlgorithm::kRing), "ring");
  // Direct: one round in which everyone sends three times 1000 bytes over its link.
  EXPECT_NEAR(AllReduceSeconds(links, group, 1000), 1e-4 + 3000 / 1e9, 1e-12);
  // Ring: six steps of a quarter each.
  EXPECT_NEAR(AllReduceSeconds(links, group, 64 << 20), 6 * (1e-4 + (16 << 20) / 1e9), 1e-9);
}

TEST(CostTest, TheSlowestLinkOfTheRingSetsThePace) {
  LinkTable links = Uniform(4, 1e-4, 1e9);
  const std::vector<int> group{0, 1, 2, 3};
  links.At(0, 2).bytes_per_second = 1e6;  // Not an edge of the ring.
  EXPECT_NEAR(AllReduceSeconds(links, group, 64 << 20), 6 * (1e-4 + (16 << 20) / 1e9), 1e-9);
  links.At(3, 0).bytes_per_second = 1e8;
  EXPECT_NEAR(AllReduceSeconds(links, group, 64 << 20), 6 * (1e-4 + (16 << 20) / 1e8), 1e-9);
}

TEST(CostTest, OneMemberOrNoBytesCostNothing) {
  const LinkTable links = Uniform(3, 1e-4, 1e9);
  EXPECT_EQ(AllReduceSeconds(links, std::vector<int>{1}, 1000), 0);
  EXPECT_EQ(AllReduceSeconds(links, std::vector<int>{0, 1, 2}, 0), 0);
  EXPECT_EQ(ReduceTreeSeconds(links, std::vector<int>{2}, std::vector<int>{4}, 1000), 0);
  EXPECT_EQ(AllGatherBytesSeconds(Uniform(1, 1e-4, 1e9), 1000), 0);
}

TEST(CostTest, ReduceTreePaysForEachPartialSum) {
  const LinkTable links = Uniform(2, 0, 1e8);
  const std::vector<int> group{0, 1};
  const int64_t bytes = 100 << 20;
  // Each sends one partial sum of the other's half and the result of its own: all the bytes once.
  const double one = ReduceTreeSeconds(links, group, std::vector<int>{1, 1}, bytes);
  EXPECT_NEAR(one, static_cast<double>(bytes) / 1e8, 0.01);
  // Three partial sums each: three halves and the result's half.
  const double three = ReduceTreeSeconds(links, group, std::vector<int>{3, 3}, bytes);
  EXPECT_NEAR(three / one, 2, 0.01);
  EXPECT_EQ(ReduceTreeOwners(4, 100), 1);
  EXPECT_EQ(ReduceTreeOwners(4, 1 << 20), 4);
}

TEST(CostTest, GatheringClimbsTheTreeAndComesBack) {
  const LinkTable links = Uniform(3, 1e-3, 1e9);
  // One hop up, one down; the second child is served after the first.
  EXPECT_NEAR(AllGatherBytesSeconds(links, 10), 2e-3, 1e-4);
  EXPECT_NEAR(AllGatherBytesSeconds(Uniform(7, 1e-3, 1e9), 10), 4e-3, 1e-4);
}

}  // namespace
}  // namespace heddle::comm
