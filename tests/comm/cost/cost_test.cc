// Costs against hand-computed cases of Hockney's model.
#include "comm/cost/cost.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
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

std::vector<int> Everyone(int size) {
  std::vector<int> group(static_cast<size_t>(size));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

// Two halves, joined by links that are `factor` times slower in rate and latency.
LinkTable Halves(int size, double latency, double rate, double factor) {
  LinkTable links = Uniform(size, latency, rate);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if ((from < size / 2) != (to < size / 2)) {
        links.At(from, to).latency_seconds = latency * factor;
        links.At(from, to).bytes_per_second = rate / factor;
      }
    }
  }
  return links;
}

// Two members a core: what counts is how many messages there are, not how many in a row.
TEST(CostTest, MembersThatTakeTurnsOnCoresSendFewMessages) {
  LinkTable links = Uniform(4, 2e-5, 1e9);
  const std::vector<int> group = Everyone(4);
  EXPECT_EQ(ChooseAllReduce(links, group, 4).algorithm, AllReduceAlgorithm::kDirect);
  links.At(2, 1).crowding = 2;
  EXPECT_EQ(ChooseAllReduce(links, group, 4).algorithm, AllReduceAlgorithm::kRecursiveDoubling);
  // Two rounds, each message sent and taken by members of which two share a core.
  EXPECT_NEAR(AllReduceSeconds(links, group, 4), 2 * 2 * 2 * 6e-6, 5e-6);
}

TEST(CostTest, SmallAllReducesGoDirectLargeOnesInTwoPhases) {
  const LinkTable links = Uniform(4, 1e-4, 1e9);
  const std::vector<int> group = Everyone(4);
  EXPECT_EQ(ChooseAllReduce(links, group, 4).algorithm, AllReduceAlgorithm::kDirect);
  EXPECT_EQ(ChooseAllReduce(links, group, 64 << 20).algorithm, AllReduceAlgorithm::kTwoPhase);
  // Direct: one round of three messages of 1000 bytes each way; the terms beside Hockney's are
  // small.
  EXPECT_NEAR(AllReduceSeconds(links, group, 1000), 1e-4 + 3000 / 1e9, 2.4e-5);
  // By ring: six steps of a quarter each.
  EXPECT_NEAR(AllReduceSeconds(links, group, 64 << 20), 6 * (1e-4 + (16 << 20) / 1e9), 6e-5);
  const FlatLinks flat = FlatLinks::Of(links, group);
  const ShareSizes large = ShareSizes::Even(64 << 20, 4);
  EXPECT_EQ(flat.ReduceScatter(large, 1).algorithm, ShareAlgorithm::kRing);
  EXPECT_EQ(flat.AllGather(ShareSizes::Even(4000, 4)).algorithm, ShareAlgorithm::kDirect);
  // Partial sums in fp32 would double a ring's bytes; the direct exchange sends the 16 bits.
  EXPECT_EQ(flat.ReduceScatter(large, 2).algorithm, ShareAlgorithm::kDirect);
}

TEST(CostTest, ManyMembersDoubleRecursively) {
  for (const int size : {64, 100}) {
    const LinkTable links = Uniform(size, 1e-6, 1e10);
    const AllReduceChoice choice = ChooseAllReduce(links, Everyone(size), 8);
    EXPECT_EQ(choice.algorithm, AllReduceAlgorithm::kRecursiveDoubling);
    // Six rounds of 64, and two more for the members beyond a power of two.
    EXPECT_NEAR(choice.seconds, (size == 64 ? 6 : 8) * (1e-6 + 6e-6), 1e-7);
  }
}

TEST(CostTest, TheSlowestLinkOfTheRingSetsThePace) {
  LinkTable links = Uniform(4, 1e-4, 1e9);
  const std::vector<int> group = Everyone(4);
  links.At(0, 2).bytes_per_second = 1e6;  // Not an edge of the ring.
  EXPECT_NEAR(AllReduceSeconds(links, group, 64 << 20), 6 * (1e-4 + (16 << 20) / 1e9), 6e-5);
  links.At(3, 0).bytes_per_second = 1e8;
  links.At(2, 1).bytes_per_second = 1e6;
  links.At(3, 1).bytes_per_second = 1e6;
  links.At(1, 3).bytes_per_second = 1e6;
  EXPECT_NEAR(FlatLinks::Of(links, group).AllReduce(64 << 20, 1).seconds,
              6 * (1e-4 + (16 << 20) / 1e8), 1e-4);
}

TEST(CostTest, WhatIsKnownToBeAlikeCostsAsMuchAsWhatIsNot) {
  const Link link;
  for (const int size : {1, 2, 3, 5, 8, 13}) {
    LinkTable links(size);
    const Topology known = Topology::Of(links, Everyone(size));
    const Topology unknown = Topology::Uniform(size, link);
    for (const int64_t bytes : {int64_t{0}, int64_t{4}, int64_t{70000}, int64_t{64} << 20}) {
      EXPECT_EQ(known.AllReduce(bytes, 1).algorithm, unknown.AllReduce(bytes, 1).algorithm);
      EXPECT_NEAR(known.AllReduce(bytes, 2).seconds, unknown.AllReduce(bytes, 2).seconds, 1e-12);
    }
    EXPECT_TRUE(known.hierarchies().empty());
  }
}

TEST(CostTest, IslandsAreWhatBetterLinksJoin) {
  const Topology topology = Topology::Of(Halves(6, 1e-5, 1e9, 10), Everyone(6));
  ASSERT_EQ(topology.hierarchies().size(), 1);
  EXPECT_THAT(topology.hierarchies()[0].islands,
              testing::ElementsAre(testing::ElementsAre(0, 1, 2), testing::ElementsAre(3, 4, 5)));
  EXPECT_EQ(topology.hierarchies()[0].across.size(), 3);
  // Half as fast is no gap; noise makes no islands.
  EXPECT_TRUE(Topology::Of(Halves(6, 1e-5, 1e9, 1.8), Everyone(6)).hierarchies().empty());
  // A group within an island has none, whatever the others' links.
  EXPECT_TRUE(
      Topology::Of(Halves(6, 1e-5, 1e9, 10), std::vector<int>{3, 4, 5}).hierarchies().empty());
}

TEST(CostTest, HostsInRacksAreIslandsInIslands) {
  LinkTable links(8);
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      links.At(from, to).bytes_per_second = from / 2 == to / 2   ? 1e10
                                            : from / 4 == to / 4 ? 1e9
                                                                 : 1e8;
    }
  }
  const Topology topology = Topology::Of(links, Everyone(8));
  ASSERT_EQ(topology.hierarchies().size(), 2);
  std::vector<size_t> islands{topology.hierarchies()[0].islands.size(),
                              topology.hierarchies()[1].islands.size()};
  EXPECT_THAT(islands, testing::UnorderedElementsAre(2, 4));
}

TEST(CostTest, CarriersAreTheMembersWithTheBestLinksOutside) {
  LinkTable links = Halves(6, 1e-5, 1e9, 20);
  for (const int to : {3, 4, 5}) {
    links.At(2, to) =
        links.At(to, 2) = {.latency_seconds = 1e-4, .bytes_per_second = 1e8, .transport = "verbs"};
  }
  const Topology topology = Topology::Of(links, Everyone(6));
  ASSERT_FALSE(topology.hierarchies().empty());
  EXPECT_EQ(topology.hierarchies()[0].islands[0].front(), 2);
}

TEST(CostTest, ASlowLinkBetweenIslandsCarriesEachByteOnce) {
  const int64_t bytes = 64 << 20;
  const LinkTable links = Halves(4, 1e-5, 1e9, 100);
  const Topology topology = Topology::Of(links, Everyone(4));
  const AllReduceChoice choice = topology.AllReduce(bytes, 1);
  EXPECT_EQ(choice.algorithm, AllReduceAlgorithm::kHierarchical);
  EXPECT_EQ(choice.crossings, 2);
  // Each of two crossings carries half, out and in at once; the islands' own links add a hundredth.
  const double across = static_cast<double>(bytes) / 2 / 1e7;
  EXPECT_NEAR(choice.seconds, across, 0.03 * across);
  EXPECT_GT(topology.flat().AllReduce(bytes, 1).seconds, 1.9 * across);
  // Few bytes, too. Only where the halves are powers of two does recursive doubling cross between
  // them as rarely, in its last round.
  const auto few = [](int size) {
    return Topology::Of(Halves(size, 1e-6, 1e10, 2000), Everyone(size)).AllReduce(8, 1);
  };
  EXPECT_EQ(few(12).algorithm, AllReduceAlgorithm::kHierarchical);
  EXPECT_NEAR(few(12).seconds, 2e-3, 1e-4);
  EXPECT_EQ(few(16).algorithm, AllReduceAlgorithm::kRecursiveDoubling);
  EXPECT_NEAR(few(16).seconds, 2e-3, 1e-4);
}

TEST(CostTest, UnevenSharesCostTheBytesThatTravel) {
  // Eight parts of eleven at one member: a ring carries at most all but the smallest share, a
  // direct exchange the largest one three times over the same link.
  const FlatLinks flat = FlatLinks::Of(Uniform(4, 1e-5, 1e9), Everyone(4));
  const ShareSizes sizes{.total = 11 << 20, .largest = 8 << 20, .smallest = 1 << 20};
  const ShareChoice choice = flat.AllGather(sizes);
  EXPECT_EQ(choice.algorithm, ShareAlgorithm::kRing);
  EXPECT_NEAR(choice.seconds, (10 << 20) / 1e9, 1e-4);
  // Padding to the largest share sends three times 8 MiB.
  EXPECT_LT(choice.seconds, flat.AllGather(ShareSizes::Even(32 << 20, 4)).seconds / 2);
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

TEST(LinksTest, APairsLinkIsTheSlowerOfItsEnds) {
  const std::vector<LinkEnd> ends = {
      {.link = {.latency_seconds = 1e-6, .bytes_per_second = 8e9, .transport = "shm"}, .host = "x"},
      {.link = {.latency_seconds = 3e-6, .bytes_per_second = 9e9, .transport = "shm"}, .host = "x"},
      {.link = {.latency_seconds = 2e-6, .bytes_per_second = 1e9, .transport = "shm"}, .host = "y"},
  };
  const LinkTable links = LinksBetween(ends);
  EXPECT_EQ(links.At(0, 1).transport, "shm");
  EXPECT_EQ(links.At(0, 1).latency_seconds, 3e-6);
  EXPECT_EQ(links.At(1, 0).bytes_per_second, 8e9);
  EXPECT_EQ(links.At(1, 2).transport, "tcp");
  EXPECT_EQ(links.At(1, 2).latency_seconds, 3e-6);
  EXPECT_EQ(links.At(2, 1).bytes_per_second, 1e9);
}

}  // namespace
}  // namespace heddle::comm
