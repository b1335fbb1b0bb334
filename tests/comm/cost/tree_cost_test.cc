// What the trees are predicted to cost against their model written down anew, over random links.
#include <algorithm>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "comm/cost/cost.h"
#include "tests/comm/cost/random_links.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

using Group = std::vector<int>;

constexpr int64_t kSizes[] = {0, 1, 8, 1000, 16 << 10, 100001, 1 << 20, 64 << 20};

// One partial sum after another on the links of whoever has most to do, the slowest link's latency
// there and back, and a piece that overlaps with nothing.
TEST(CostReferenceTest, AReduceTreeCostsItsBusiestMember) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 200; ++round) {
    const int members = static_cast<int>(2 + random.Below(6));
    const LinkTable links = RandomLinks(random, members);
    Group group(static_cast<size_t>(members));
    std::iota(group.begin(), group.end(), 0);
    Group sums;
    for (int i = 0; i < members; ++i) {
      sums.push_back(static_cast<int>(random.Below(4)));
    }
    for (const int64_t bytes : kSizes) {
      const int owners =
          std::max(1, std::min(members, static_cast<int>(std::min<int64_t>(99, bytes / 16384))));
      EXPECT_EQ(ReduceTreeOwners(members, bytes), owners);
      const double slice = static_cast<double>(bytes) / owners;
      double latency = 0;
      double busiest = 0;
      double piece = 0;
      for (int own = 0; own < members; ++own) {
        double out = 0;
        double in = 0;
        for (int other = 0; other < members; ++other) {
          if (other != own) {
            const Link& there = links.At(own, other);
            const Link& back = links.At(other, own);
            const int sent =
                (other < owners ? sums[static_cast<size_t>(own)] : 0) + (own < owners ? 1 : 0);
            const int taken =
                (own < owners ? sums[static_cast<size_t>(other)] : 0) + (other < owners ? 1 : 0);
            out += sent * slice / there.bytes_per_second;
            in += taken * slice / back.bytes_per_second;
            latency = std::max(latency, there.latency_seconds);
            piece = std::max(piece, std::min(slice, 262144.0) / there.bytes_per_second);
          }
        }
        busiest = std::max(busiest, std::max(out, in));
      }
      const double expected = bytes == 0 ? 0 : 2 * latency + busiest + piece;
      EXPECT_NEAR(ReduceTreeSeconds(links, group, sums, bytes), expected, 1e-9 * expected);
    }
  }
}

// A binary tree, the root first: what is below a member goes up in one message, all of it comes
// down, to the left child first; no message is smaller than 1 KiB.
TEST(CostReferenceTest, AGatherClimbsAndDescendsItsTree) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 200; ++round) {
    const int members = static_cast<int>(1 + random.Below(12));
    const LinkTable links = RandomLinks(random, members);
    for (const int64_t bytes : {1, 100, 1024, 5000}) {
      const std::function<int64_t(int)> below = [&](int rank) -> int64_t {
        return rank >= members ? 0 : 1 + below(2 * rank + 1) + below(2 * rank + 2);
      };
      const std::function<double(int)> up = [&](int rank) {
        double ready = 0;
        for (const int child : {2 * rank + 1, 2 * rank + 2}) {
          if (child < members) {
            const int64_t message = std::max<int64_t>(1024, bytes * below(child));
            ready = std::max(ready, up(child) + links.At(child, rank).Seconds(message));
          }
        }
        return ready;
      };
      const auto whole = static_cast<double>(std::max<int64_t>(1024, bytes * members));
      const std::function<double(int)> down = [&](int rank) {
        double last = 0;
        for (const int child : {2 * rank + 1, 2 * rank + 2}) {
          if (child < members) {
            const Link& link = links.At(rank, child);
            const double turns = child == 2 * rank + 1 ? 1 : 2;
            last = std::max(
                last, link.latency_seconds + turns * whole / link.bytes_per_second + down(child));
          }
        }
        return last;
      };
      const double expected = members < 2 ? 0 : up(0) + down(0);
      EXPECT_NEAR(AllGatherBytesSeconds(links, bytes), expected, 1e-9 * expected);
    }
  }
}

}  // namespace
}  // namespace heddle::comm
