#include "comm/cost/topology.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace heddle::comm {

namespace {

/// What each message of a round costs those who send and take it.
constexpr double kMessageSeconds = 6e-6;
/// Folding with nothing to overlap it: two reads and a write a byte, from memory.
constexpr double kFoldSecondsPerByte = 1 / 8e9;
/// Several senders at once cost a receiver some of its bandwidth, and memory for what arrives: a
/// ring's neighbour is preferred where the two differ by less.
constexpr double kCrowding = 1.1;
/// A message that tells a good link from a bad one.
constexpr int64_t kProbeBytes = int64_t{1} << 20;
/// A gap between links that makes islands.
constexpr double kIslandGap = 2;
constexpr size_t kMaxHierarchies = 3;

// The time of a probe message between a pair, in the worse direction.
double PairSeconds(const LinkTable& links, int a, int b) {
  return std::max(links.At(a, b).Seconds(kProbeBytes), links.At(b, a).Seconds(kProbeBytes));
}

int Root(std::vector<int>& parent, int i) {
  while (parent[static_cast<size_t>(i)] != i) {
    int& up = parent[static_cast<size_t>(i)];
    up = parent[static_cast<size_t>(up)];
    i = up;
  }
  return i;
}

// Connected components of the pairs that take at most `limit`, by their first members.
std::vector<std::vector<int>> Components(const LinkTable& links,
                                         std::span<const int> group,
                                         double limit) {
  const int size = static_cast<int>(group.size());
  std::vector<int> parent(group.size());
  std::iota(parent.begin(), parent.end(), 0);
  for (int i = 0; i < size; ++i) {
    for (int j = i + 1; j < size; ++j) {
      const int a = Root(parent, i);
      const int b = Root(parent, j);
      if (a != b && PairSeconds(links, group[static_cast<size_t>(i)],
                                group[static_cast<size_t>(j)]) <= limit) {
        parent[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
      }
    }
  }
  std::vector<std::vector<int>> components;
  std::vector<int> number(group.size(), -1);
  for (int i = 0; i < size; ++i) {
    int& of_root = number[static_cast<size_t>(Root(parent, i))];
    if (of_root < 0) {
      of_root = static_cast<int>(components.size());
      components.emplace_back();
    }
    components[static_cast<size_t>(of_root)].push_back(i);
  }
  return components;
}

// Times on the near side of a gap, the widest gaps first.
std::vector<double> Thresholds(const LinkTable& links, std::span<const int> group) {
  double best = std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = i + 1; j < group.size(); ++j) {
      const double seconds = PairSeconds(links, group[i], group[j]);
      best = std::min(best, seconds);
      worst = std::max(worst, seconds);
    }
  }
  if (group.size() < 3 || worst < kIslandGap * best) {
    return {};
  }
  std::vector<double> all;
  all.reserve(group.size() * (group.size() - 1) / 2);
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = i + 1; j < group.size(); ++j) {
      all.push_back(PairSeconds(links, group[i], group[j]));
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<std::pair<double, double>> gaps;  // Ratio, near side.
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i + 1] >= kIslandGap * all[i]) {
      gaps.emplace_back(all[i + 1] / all[i], all[i]);
    }
  }
  std::sort(gaps.rbegin(), gaps.rend());
  std::vector<double> thresholds;
  for (size_t i = 0; i < std::min(gaps.size(), kMaxHierarchies); ++i) {
    thresholds.push_back(gaps[i].second);
  }
  return thresholds;
}

std::vector<int> RanksOf(std::span<const int> group, const std::vector<int>& positions) {
  std::vector<int> ranks;
  ranks.reserve(positions.size());
  for (const int position : positions) {
    ranks.push_back(group[static_cast<size_t>(position)]);
  }
  return ranks;
}

// Members with the best links to other islands first; equal ones in order of positions.
void SortCarriers(const LinkTable& links, std::span<const int> group, std::vector<int>& island) {
  std::vector<double> outside(group.size(), 0.0);
  for (const int own : island) {
    for (size_t other = 0; other < group.size(); ++other) {
      if (std::find(island.begin(), island.end(), static_cast<int>(other)) == island.end()) {
        outside[static_cast<size_t>(own)] +=
            PairSeconds(links, group[static_cast<size_t>(own)], group[other]);
      }
    }
  }
  std::stable_sort(island.begin(), island.end(), [&](int a, int b) {
    return outside[static_cast<size_t>(a)] < outside[static_cast<size_t>(b)];
  });
}

}  // namespace

ShareSizes ShareSizes::Even(int64_t total, int members) {
  return {.total = total, .largest = (total + members - 1) / members, .smallest = total / members};
}

FlatLinks FlatLinks::Of(const LinkTable& links, std::span<const int> ranks) {
  FlatLinks flat;
  const int size = static_cast<int>(ranks.size());
  flat.members_ = size;
  const auto link = [&](int from, int to) -> const Link& {
    return links.At(ranks[static_cast<size_t>(from)], ranks[static_cast<size_t>(to)]);
  };
  const auto worsen = [](Pace& pace, const Link& other) {
    pace.latency = std::max(pace.latency, other.latency_seconds);
    pace.seconds_per_byte = std::max(pace.seconds_per_byte, 1 / other.bytes_per_second);
  };
  for (int own = 0; own < size && size > 1; ++own) {
    double out = 0;
    double in = 0;
    for (int other = 0; other < size; ++other) {
      if (other != own) {
        flat.any_.latency = std::max(flat.any_.latency, link(own, other).latency_seconds);
        flat.crowding_ = std::max(flat.crowding_, link(own, other).crowding);
        out += 1 / link(own, other).bytes_per_second;
        in += 1 / link(other, own).bytes_per_second;
      }
    }
    flat.any_.seconds_per_byte =
        std::max(flat.any_.seconds_per_byte, std::max(out, in) / static_cast<double>(size - 1));
    worsen(flat.ring_, link(own, (own + 1) % size));
  }
  const auto add_round = [&flat](const Pace& round) {
    flat.doubling_.latency += round.latency;
    flat.doubling_.seconds_per_byte += round.seconds_per_byte;
    ++flat.doubling_rounds_;
  };
  const int whole = size > 0 ? static_cast<int>(std::bit_floor(static_cast<unsigned>(size))) : 0;
  const int extra = size - whole;
  const auto position = [extra](int stand_in) {
    return stand_in < extra ? 2 * stand_in : stand_in + extra;
  };
  if (extra > 0) {
    Pace there;
    Pace back;
    for (int i = 0; i < extra; ++i) {
      worsen(there, link(2 * i + 1, 2 * i));
      worsen(back, link(2 * i, 2 * i + 1));
    }
    add_round(there);
    add_round(back);
  }
  for (int bit = 1; bit < whole; bit <<= 1) {
    Pace round;
    for (int i = 0; i < whole; ++i) {
      worsen(round, link(position(i), position(i ^ bit)));
    }
    add_round(round);
  }
  return flat;
}

FlatLinks FlatLinks::Uniform(int members, const Link& link) {
  FlatLinks flat;
  flat.members_ = members;
  flat.crowding_ = link.crowding;
  flat.any_ = {.latency = link.latency_seconds, .seconds_per_byte = 1 / link.bytes_per_second};
  flat.ring_ = flat.any_;
  const auto size = static_cast<unsigned>(std::max(members, 1));
  flat.doubling_rounds_ =
      static_cast<int>(std::bit_width(size)) - 1 + (std::has_single_bit(size) ? 0 : 2);
  flat.doubling_ = {.latency = flat.doubling_rounds_ * flat.any_.latency,
                    .seconds_per_byte = flat.doubling_rounds_ * flat.any_.seconds_per_byte};
  return flat;
}

// A worker's messages of one direction follow each other on its link.
double FlatLinks::Direct(double bytes) const {
  return std::max(any_.latency + (members_ - 1) * kMessageSeconds, Turns(members_ - 1)) +
         bytes * any_.seconds_per_byte * (members_ > 2 ? kCrowding : 1);
}

// Each message is sent and received. With a core for each member, that time is part of the latency,
// and this returns 0; with fewer cores, the members take turns.
double FlatLinks::Turns(int messages) const {
  return crowding_ > 1 ? 2 * messages * kMessageSeconds * crowding_ : 0;
}

ShareChoice FlatLinks::ReduceScatter(const ShareSizes& sizes, int widening) const {
  if (members_ < 2 || sizes.total == 0) {
    return {};
  }
  // Each member sends (or receives) all but its own share, and the owner of the largest share
  // exchanges it with all others.
  const auto others = static_cast<double>(sizes.total - sizes.smallest);
  const double direct = Direct(
      std::max(others, static_cast<double>(members_ - 1) * static_cast<double>(sizes.largest)));
  // Pieces follow each other without waiting for steps to end: a link carries what it must.
  const double ring =
      std::max((members_ - 1) * (ring_.latency + kMessageSeconds), Turns(members_ - 1)) +
      others * widening * ring_.seconds_per_byte;
  return ring < direct ? ShareChoice{.algorithm = ShareAlgorithm::kRing, .seconds = ring}
                       : ShareChoice{.algorithm = ShareAlgorithm::kDirect, .seconds = direct};
}

AllReduceChoice FlatLinks::AllReduce(int64_t bytes, int widening) const {
  AllReduceChoice choice;
  if (members_ < 2 || bytes == 0) {
    return choice;
  }
  const auto size = static_cast<double>(bytes);
  choice.seconds = Direct((members_ - 1) * size) + members_ * size * kFoldSecondsPerByte;
  const double doubling =
      std::max(doubling_.latency + doubling_rounds_ * kMessageSeconds, Turns(doubling_rounds_)) +
      size * widening * (doubling_.seconds_per_byte + doubling_rounds_ * kFoldSecondsPerByte);
  if (doubling < choice.seconds) {
    choice.algorithm = AllReduceAlgorithm::kRecursiveDoubling;
    choice.seconds = doubling;
  }
  const ShareSizes shares = ShareSizes::Even(bytes, members_);
  const double two_phase = ReduceScatter(shares, widening).seconds + AllGather(shares).seconds;
  if (two_phase < choice.seconds) {
    choice.algorithm = AllReduceAlgorithm::kTwoPhase;
    choice.seconds = two_phase;
  }
  return choice;
}

Topology Topology::Of(const LinkTable& links, std::span<const int> group) {
  Topology topology;
  topology.flat_ = FlatLinks::Of(links, group);
  for (const double threshold : Thresholds(links, group)) {
    Hierarchy hierarchy;
    hierarchy.islands = Components(links, group, threshold);
    if (hierarchy.islands.size() < 2 || hierarchy.islands.size() == group.size()) {
      continue;
    }
    size_t crossings = group.size();
    for (std::vector<int>& island : hierarchy.islands) {
      SortCarriers(links, group, island);
      hierarchy.inside.push_back(FlatLinks::Of(links, RanksOf(group, island)));
      crossings = std::min(crossings, island.size());
    }
    for (size_t crossing = 0; crossing < crossings; ++crossing) {
      std::vector<int> members;
      for (const auto& island : hierarchy.islands) {
        members.push_back(island[crossing]);
      }
      hierarchy.across.push_back(FlatLinks::Of(links, RanksOf(group, members)));
    }
    topology.hierarchies_.push_back(std::move(hierarchy));
  }
  return topology;
}

Topology Topology::Uniform(int members, const Link& link) {
  Topology topology;
  topology.flat_ = FlatLinks::Uniform(members, link);
  return topology;
}

AllReduceChoice Topology::AllReduce(int64_t bytes, int widening) const {
  AllReduceChoice best = flat_.AllReduce(bytes, widening);
  if (bytes == 0) {
    return best;
  }
  for (size_t i = 0; i < hierarchies_.size(); ++i) {
    const Hierarchy& hierarchy = hierarchies_[i];
    const int most = static_cast<int>(hierarchy.across.size());
    for (const int crossings : most == 1 ? std::vector<int>{1} : std::vector<int>{1, most}) {
      double inside = 0;
      for (const FlatLinks& island : hierarchy.inside) {
        const ShareSizes shares{.total = bytes,
                                .largest = (bytes + crossings - 1) / crossings,
                                .smallest = island.members() > crossings ? 0 : bytes / crossings};
        inside = std::max(inside, island.ReduceScatter(shares, widening).seconds +
                                      island.AllGather(shares).seconds);
      }
      double across = 0;
      for (int crossing = 0; crossing < crossings; ++crossing) {
        across = std::max(across, hierarchy.across[static_cast<size_t>(crossing)]
                                      .AllReduce((bytes + crossings - 1) / crossings, widening)
                                      .seconds);
      }
      if (inside + across < best.seconds) {
        best = {.algorithm = AllReduceAlgorithm::kHierarchical,
                .hierarchy = static_cast<int>(i),
                .crossings = crossings,
                .seconds = inside + across};
      }
    }
  }
  return best;
}

}  // namespace heddle::comm
