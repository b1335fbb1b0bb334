// Predicted costs against the model written down anew, plainly, over random tables of links: no two
// links need be alike, and neither need a pair's two directions.
#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/cost/topology.h"
#include "tests/comm/cost/random_links.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

using Group = std::vector<int>;

constexpr double kMessage = 6e-6;     // A message, beside its link.
constexpr double kFold = 1.0 / 8e9;   // A byte that is folded in.
constexpr double kManySenders = 1.1;  // Several senders at one receiver.

int CeilLog2(int n) {
  int rounds = 0;
  while ((1 << rounds) < n) {
    ++rounds;
  }
  return rounds;
}

// The flat algorithms of one group.
struct Model {
  const LinkTable& links;
  Group group;

  int size() const { return static_cast<int>(group.size()); }
  const Link& At(int from, int to) const {
    return links.At(group[static_cast<size_t>(from)], group[static_cast<size_t>(to)]);
  }
  void EachPair(const std::function<void(int, int)>& see) const {
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        if (from != to) {
          see(from, to);
        }
      }
    }
  }
  double Turns(int messages) const {
    double crowding = 1;
    EachPair([&](int from, int to) { crowding = std::max(crowding, At(from, to).crowding); });
    return crowding > 1 ? messages * 2 * kMessage * crowding : 0;
  }
  double Direct(double bytes) const {
    double latency = 0;
    std::vector<double> out(group.size());
    std::vector<double> in(group.size());
    EachPair([&](int from, int to) {
      latency = std::max(latency, At(from, to).latency_seconds);
      const double a_byte = 1 / At(from, to).bytes_per_second / (size() - 1);
      out[static_cast<size_t>(from)] += a_byte;
      in[static_cast<size_t>(to)] += a_byte;
    });
    const double a_byte = std::max(*std::max_element(out.begin(), out.end()),
                                   *std::max_element(in.begin(), in.end()));
    return std::max(latency + (size() - 1) * kMessage, Turns(size() - 1)) +
           bytes * a_byte * (size() > 2 ? kManySenders : 1);
  }
  double Ring(double bytes) const {
    double latency = 0;
    double a_byte = 0;
    for (int own = 0; own < size(); ++own) {
      const Link& next = At(own, (own + 1) % size());
      latency = std::max(latency, next.latency_seconds);
      a_byte = std::max(a_byte, 1 / next.bytes_per_second);
    }
    return std::max((size() - 1) * (latency + kMessage), Turns(size() - 1)) + bytes * a_byte;
  }
  ShareChoice Shares(const ShareSizes& sizes, int widening) const {
    if (size() < 2 || sizes.total == 0) {
      return {};
    }
    const auto others = static_cast<double>(sizes.total - sizes.smallest);
    const double meet = static_cast<double>(sizes.largest) * (size() - 1);
    const double direct = Direct(std::max(others, meet));
    const double ring = Ring(others * widening);
    return ring < direct ? ShareChoice{ShareAlgorithm::kRing, ring}
                         : ShareChoice{ShareAlgorithm::kDirect, direct};
  }
  double Doubling(double bytes, int widening) const {
    // Whoever is beyond a power of two gives its values to its neighbour and gets the result.
    Group in_rounds;
    int whole = 1;
    while (2 * whole <= size()) {
      whole *= 2;
    }
    const int extra = size() - whole;
    std::vector<std::vector<std::pair<int, int>>> rounds;
    if (extra > 0) {
      rounds.resize(2);
    }
    for (int at = 0; at < size();) {
      in_rounds.push_back(at);
      if (at / 2 < extra) {
        rounds[0].emplace_back(at + 1, at);
        rounds[1].emplace_back(at, at + 1);
        at += 2;
      } else {
        ++at;
      }
    }
    for (size_t distance = 1; distance < in_rounds.size(); distance *= 2) {
      rounds.emplace_back();
      for (size_t i = 0; i < in_rounds.size(); ++i) {
        rounds.back().emplace_back(in_rounds[i], in_rounds[i ^ distance]);
      }
    }
    EXPECT_EQ(static_cast<int>(rounds.size()), CeilLog2(whole) + (extra > 0 ? 2 : 0));
    double seconds = 0;
    double a_byte = 0;
    for (const auto& round : rounds) {
      double latency = 0;
      double worst = 0;
      for (const auto& [from, to] : round) {
        latency = std::max(latency, At(from, to).latency_seconds);
        worst = std::max(worst, 1 / At(from, to).bytes_per_second);
      }
      seconds += latency + kMessage;
      a_byte += worst + kFold;
    }
    return std::max(seconds, Turns(static_cast<int>(rounds.size()))) + bytes * widening * a_byte;
  }
  AllReduceChoice AllReduce(int64_t bytes, int widening) const {
    AllReduceChoice best;
    if (size() < 2 || bytes == 0) {
      return best;
    }
    const auto all = static_cast<double>(bytes);
    best.seconds = Direct((size() - 1) * all) + size() * all * kFold;
    const auto take = [&](AllReduceAlgorithm algorithm, double seconds) {
      if (seconds < best.seconds) {
        best.algorithm = algorithm;
        best.seconds = seconds;
      }
    };
    take(AllReduceAlgorithm::kRecursiveDoubling, Doubling(all, widening));
    const ShareSizes even{bytes, (bytes + size() - 1) / size(), bytes / size()};
    take(AllReduceAlgorithm::kTwoPhase, Shares(even, widening).seconds + Shares(even, 1).seconds);
    return best;
  }
};

// Of a pair, the worse direction of a message of 1 MiB.
double PairSeconds(const Model& model, int a, int b) {
  return std::max(model.At(a, b).Seconds(1 << 20), model.At(b, a).Seconds(1 << 20));
}

// Who reaches whom over pairs within the limit, by trying all ways.
std::vector<Group> IslandsWithin(const Model& model, double limit) {
  const int size = model.size();
  std::vector<std::vector<bool>> joined(model.group.size(), std::vector<bool>(model.group.size()));
  for (int a = 0; a < size; ++a) {
    for (int b = 0; b < size; ++b) {
      joined[static_cast<size_t>(a)][static_cast<size_t>(b)] =
          a == b || PairSeconds(model, a, b) <= limit;
    }
  }
  for (size_t by = 0; by < joined.size(); ++by) {
    for (size_t a = 0; a < joined.size(); ++a) {
      for (size_t b = 0; b < joined.size(); ++b) {
        joined[a][b] = joined[a][b] || (joined[a][by] && joined[by][b]);
      }
    }
  }
  std::vector<Group> islands;
  for (int a = 0; a < size; ++a) {
    const auto& mine = joined[static_cast<size_t>(a)];
    if (std::find(mine.begin(), mine.end(), true) - mine.begin() == a) {
      Group& island = islands.emplace_back();
      for (int b = a; b < size; ++b) {
        if (mine[static_cast<size_t>(b)]) {
          island.push_back(b);
        }
      }
    }
  }
  return islands;
}

std::vector<std::vector<Group>> HierarchiesOf(const Model& model) {
  std::vector<double> seconds;
  for (int a = 0; a < model.size(); ++a) {
    for (int b = 0; b < a; ++b) {
      seconds.push_back(PairSeconds(model, a, b));
    }
  }
  std::sort(seconds.begin(), seconds.end());
  std::vector<std::pair<double, double>> gaps;
  for (size_t i = 1; i < seconds.size(); ++i) {
    if (seconds[i] >= 2 * seconds[i - 1]) {
      gaps.emplace_back(-seconds[i] / seconds[i - 1], -seconds[i - 1]);
    }
  }
  std::sort(gaps.begin(), gaps.end());
  gaps.resize(std::min<size_t>(gaps.size(), 3));
  std::vector<std::vector<Group>> hierarchies;
  for (const auto& [ratio, near] : gaps) {
    std::vector<Group> islands = IslandsWithin(model, -near);
    if (islands.size() == 1 || islands.size() == model.group.size() || model.size() < 3) {
      continue;
    }
    for (Group& island : islands) {
      const Group inside = island;
      const auto outside = [&](int own) {
        double sum = 0;
        for (int other = 0; other < model.size(); ++other) {
          if (std::find(inside.begin(), inside.end(), other) == inside.end()) {
            sum += PairSeconds(model, own, other);
          }
        }
        return sum;
      };
      std::stable_sort(island.begin(), island.end(),
                       [&](int a, int b) { return outside(a) < outside(b); });
    }
    hierarchies.push_back(islands);
  }
  return hierarchies;
}

Group RanksOf(const Model& model, const Group& positions) {
  Group ranks;
  for (const int position : positions) {
    ranks.push_back(model.group[static_cast<size_t>(position)]);
  }
  return ranks;
}

AllReduceChoice BestOf(const Model& model, int64_t bytes, int widening) {
  AllReduceChoice best = model.AllReduce(bytes, widening);
  const auto hierarchies = HierarchiesOf(model);
  for (size_t number = 0; bytes > 0 && number < hierarchies.size(); ++number) {
    const std::vector<Group>& islands = hierarchies[number];
    size_t smallest = model.group.size();
    for (const Group& island : islands) {
      smallest = std::min(smallest, island.size());
    }
    for (const int crossings : {1, static_cast<int>(smallest)}) {
      const int64_t slice = (bytes + crossings - 1) / crossings;
      double inside = 0;
      for (const Group& island : islands) {
        const Model part{model.links, RanksOf(model, island)};
        const ShareSizes sizes{bytes, slice, part.size() > crossings ? 0 : bytes / crossings};
        inside =
            std::max(inside, part.Shares(sizes, widening).seconds + part.Shares(sizes, 1).seconds);
      }
      double across = 0;
      for (int crossing = 0; crossing < crossings; ++crossing) {
        Group carriers;
        for (const Group& island : islands) {
          carriers.push_back(island[static_cast<size_t>(crossing)]);
        }
        const Model part{model.links, RanksOf(model, carriers)};
        across = std::max(across, part.AllReduce(slice, widening).seconds);
      }
      if (inside + across < best.seconds) {
        best = {AllReduceAlgorithm::kHierarchical, static_cast<int>(number), crossings,
                inside + across};
      }
    }
  }
  return best;
}

Group RandomGroup(Random& random, int size) {
  Group group;
  for (int rank = 0; rank < size; ++rank) {
    if (random.Below(4) > 0) {
      group.push_back(rank);
    }
  }
  return group;
}

constexpr int64_t kSizes[] = {0, 1, 8, 1000, 16 << 10, 100001, 1 << 20, 64 << 20};

TEST(CostReferenceTest, SharesCostWhatTheModelSays) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 300; ++round) {
    const int members = static_cast<int>(1 + random.Below(9));
    const LinkTable links = RandomLinks(random, members);
    const Group group = RandomGroup(random, members);
    const FlatLinks flat = FlatLinks::Of(links, group);
    const Model model{links, group};
    ASSERT_EQ(flat.members(), model.size());
    if (group.empty()) {
      continue;
    }
    for (const int64_t total : kSizes) {
      const int64_t even = total / model.size();
      const ShareSizes alike = ShareSizes::Even(total, model.size());
      EXPECT_EQ(alike.smallest, even);
      EXPECT_EQ(alike.largest, even + (total % model.size() > 0 ? 1 : 0));
      for (const ShareSizes& sizes : {alike, ShareSizes{total, total / 2 + 1, total / 10}}) {
        for (const int widening : {1, 2}) {
          const ShareChoice expected = model.Shares(sizes, widening);
          const ShareChoice choice = flat.ReduceScatter(sizes, widening);
          EXPECT_NEAR(choice.seconds, expected.seconds, 1e-9 * expected.seconds) << total;
          EXPECT_EQ(choice.algorithm, expected.algorithm) << total << " " << model.size();
        }
        EXPECT_EQ(flat.AllGather(sizes).seconds, flat.ReduceScatter(sizes, 1).seconds);
      }
    }
  }
}

TEST(CostReferenceTest, AllReducesAndIslandsAreWhatTheModelSays) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 400; ++round) {
    const int members = static_cast<int>(1 + random.Below(10));
    const LinkTable links = RandomLinks(random, members);
    const Group group = RandomGroup(random, members);
    const Model model{links, group};
    const Topology topology = Topology::Of(links, group);
    std::vector<std::vector<Group>> islands;
    for (const Hierarchy& hierarchy : topology.hierarchies()) {
      islands.push_back(hierarchy.islands);
      ASSERT_EQ(hierarchy.inside.size(), hierarchy.islands.size());
    }
    ASSERT_EQ(islands, HierarchiesOf(model)) << fmt::format("{}", fmt::join(group, " "));
    for (const int64_t bytes : kSizes) {
      for (const int widening : {1, 2}) {
        const AllReduceChoice flat = model.AllReduce(bytes, widening);
        EXPECT_NEAR(topology.flat().AllReduce(bytes, widening).seconds, flat.seconds,
                    1e-9 * flat.seconds);
        const AllReduceChoice expected = BestOf(model, bytes, widening);
        const AllReduceChoice choice = topology.AllReduce(bytes, widening);
        EXPECT_NEAR(choice.seconds, expected.seconds, 1e-9 * expected.seconds);
        EXPECT_EQ(choice.algorithm, expected.algorithm) << bytes << " " << choice.seconds;
        EXPECT_EQ(choice.hierarchy, expected.hierarchy);
        EXPECT_EQ(choice.crossings, expected.crossings);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::comm
