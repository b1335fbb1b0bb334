#include "comm/cost/islands.h"

#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

using Islands = std::vector<std::vector<int>>;

LinkTable Table(int size, double bytes_per_second, const std::string& transport) {
  LinkTable table(size);
  for (int a = 0; a < size; ++a) {
    for (int b = 0; b < size; ++b) {
      table.At(a, b) = {
          .latency_seconds = 1e-5, .bytes_per_second = bytes_per_second, .transport = transport};
    }
  }
  return table;
}

void Set(LinkTable& table, int a, int b, double bytes_per_second, const std::string& transport) {
  for (Link* link : {&table.At(a, b), &table.At(b, a)}) {
    link->bytes_per_second = bytes_per_second;
    link->transport = transport;
  }
}

TEST(IslandsTest, AlikeLinksAreOneIsland) {
  EXPECT_EQ(FindIslands(LinkTable(0)), Islands());
  EXPECT_EQ(FindIslands(Table(1, 1e9, "tcp")), (Islands{{0}}));
  EXPECT_EQ(FindIslands(Table(4, 1e9, "tcp")), (Islands{{0, 1, 2, 3}}));
}

TEST(IslandsTest, HostsAreIslandsEvenWhenTheNetworkIsAsFast) {
  LinkTable table = Table(4, 6e9, "tcp");
  Set(table, 0, 2, 8e9, "shm");
  Set(table, 1, 3, 7e9, "shm");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 2}, {1, 3}}));
}

TEST(IslandsTest, AGapWithinOneKindDivides) {
  // Two racks of two machines each: 10 Gbit/s inside, 1 Gbit/s across, measured with some noise.
  LinkTable table = Table(4, 0.12e9, "tcp");
  Set(table, 0, 1, 1.1e9, "tcp");
  Set(table, 2, 3, 0.9e9, "tcp");
  Set(table, 0, 3, 0.11e9, "tcp");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1}, {2, 3}}));
  // Noise alone does not.
  LinkTable noisy = Table(4, 1e9, "tcp");
  Set(noisy, 0, 1, 1.6e9, "tcp");
  Set(noisy, 2, 3, 0.8e9, "tcp");
  EXPECT_EQ(FindIslands(noisy), (Islands{{0, 1, 2, 3}}));
}

TEST(IslandsTest, OneWayIsNotEnough) {
  LinkTable table = Table(3, 1e9, "tcp");
  for (int peer : {0, 1}) {
    table.At(2, peer).bytes_per_second = 0.1e9;  // Worker 2 sends slowly.
  }
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1}, {2}}));
}

TEST(IslandsTest, AFabricAndTheRest) {
  // 0, 1, 2 on an RDMA fabric, 3 and 4 on Ethernet only; all see each other over TCP.
  LinkTable table = Table(5, 1e9, "tcp");
  Set(table, 0, 1, 10e9, "verbs");
  Set(table, 1, 2, 11e9, "verbs");
  Set(table, 0, 2, 12e9, "verbs");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1, 2}, {3, 4}}));
  // A worker with a bad cable is alone, whatever its transport is called.
  Set(table, 0, 2, 0.5e9, "verbs");
  Set(table, 1, 2, 0.6e9, "verbs");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1}, {2, 3, 4}}));
}

TEST(IslandsTest, ALinkThatCarriesNothingJoinsNothing) {
  LinkTable table = Table(3, 1e9, "tcp");
  Set(table, 0, 2, 0, "tcp");
  Set(table, 1, 2, 0, "tcp");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1}, {2}}));
}

TEST(IslandsTest, OnlyTheWidestGapDividesAndTwiceAsFastIsOne) {
  // 8, 4 and 1: the step of four is wider than the step of two.
  LinkTable table = Table(4, 1e9, "tcp");
  Set(table, 0, 1, 8e9, "tcp");
  Set(table, 1, 2, 4e9, "tcp");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1, 2}, {3}}));
  // Of gaps that are alike the first one counts.
  Set(table, 1, 2, 2e9, "tcp");
  Set(table, 0, 1, 4e9, "tcp");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1}, {2}, {3}}));
  LinkTable twice = Table(3, 1e9, "tcp");
  Set(twice, 1, 2, 2e9, "tcp");
  EXPECT_EQ(FindIslands(twice), (Islands{{0}, {1, 2}}));
  Set(twice, 1, 2, 1.999e9, "tcp");
  EXPECT_EQ(FindIslands(twice), (Islands{{0, 1, 2}}));
}

TEST(IslandsTest, WhoIsInAFasterKindsIslandIsNotJoinedByASlowerOne) {
  // 1 and 2 are a pair by shm; 0 and 3 are left to the network, which joins them with each other.
  LinkTable table = Table(4, 1e9, "tcp");
  Set(table, 1, 2, 9e9, "shm");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 3}, {1, 2}}));
  // Both ends have to be free, whichever of them comes first.
  LinkTable chain = Table(3, 0, "tcp");
  Set(chain, 0, 1, 9e9, "shm");
  Set(chain, 1, 2, 1e9, "tcp");
  EXPECT_EQ(FindIslands(chain), (Islands{{0, 1}, {2}}));
  LinkTable turned = Table(3, 0, "tcp");
  Set(turned, 1, 2, 9e9, "shm");
  Set(turned, 0, 1, 1e9, "tcp");
  EXPECT_EQ(FindIslands(turned), (Islands{{0}, {1, 2}}));
}

TEST(IslandsTest, AKindsFastestPairSaysWhichKindComesFirst) {
  LinkTable table = Table(3, 0, "tcp");
  Set(table, 0, 1, 3e9, "a");
  Set(table, 1, 2, 5e9, "b");
  EXPECT_EQ(FindIslands(table), (Islands{{0}, {1, 2}}));
  Set(table, 0, 1, 7e9, "a");
  EXPECT_EQ(FindIslands(table), (Islands{{0, 1}, {2}}));
}

}  // namespace
}  // namespace heddle::comm
