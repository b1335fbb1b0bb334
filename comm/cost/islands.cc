#include "comm/cost/islands.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace heddle::comm {

namespace {

constexpr double kGap = 2;

struct Pair {
  int a = 0;
  int b = 0;
  double bytes_per_second = 0;  ///< Rate of the slower direction.
};

/// Union-find with path halving.
class Components {
 public:
  explicit Components(int size) : parent_(static_cast<size_t>(size)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int Root(int i) {
    while (parent_[static_cast<size_t>(i)] != i) {
      int& up = parent_[static_cast<size_t>(i)];
      up = parent_[static_cast<size_t>(up)];
      i = up;
    }
    return i;
  }
  // The lower root stays, so that a root is its component's first member.
  void Join(int a, int b) {
    const int one = Root(a);
    const int other = Root(b);
    parent_[static_cast<size_t>(std::max(one, other))] = std::min(one, other);
  }

 private:
  std::vector<int> parent_;
};

/// Sorts `pairs`, fastest first, and returns how many of them are fast.
size_t CountFast(std::vector<Pair>& pairs) {
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return a.bytes_per_second > b.bytes_per_second;
  });
  size_t fast = pairs.size();
  double widest = 1;
  for (size_t i = 1; i < pairs.size(); ++i) {
    const double gap = pairs[i - 1].bytes_per_second / pairs[i].bytes_per_second;
    if (gap >= kGap && gap > widest) {
      widest = gap;
      fast = i;
    }
  }
  return fast;
}

}  // namespace

std::vector<std::vector<int>> FindIslands(const LinkTable& links) {
  std::map<std::string, std::vector<Pair>> kinds;
  for (int a = 0; a < links.size(); ++a) {
    for (int b = a + 1; b < links.size(); ++b) {
      const Link& there = links.At(a, b);
      const double rate = std::min(there.bytes_per_second, links.At(b, a).bytes_per_second);
      if (rate > 0) {
        kinds[there.transport].push_back({.a = a, .b = b, .bytes_per_second = rate});
      }
    }
  }
  struct Kind {
    std::vector<Pair> pairs;
    size_t fast = 0;
  };
  std::vector<Kind> order;
  for (auto& [name, pairs] : kinds) {
    const size_t fast = CountFast(pairs);
    order.push_back({.pairs = std::move(pairs), .fast = fast});
  }
  std::stable_sort(order.begin(), order.end(), [](const Kind& a, const Kind& b) {
    return a.pairs.front().bytes_per_second > b.pairs.front().bytes_per_second;
  });

  Components components(links.size());
  std::vector<bool> taken(static_cast<size_t>(links.size()));
  for (const Kind& kind : order) {
    const std::vector<bool> before = taken;
    for (size_t i = 0; i < kind.fast; ++i) {
      const Pair& pair = kind.pairs[i];
      const auto a = static_cast<size_t>(pair.a);
      const auto b = static_cast<size_t>(pair.b);
      if (!before[a] && !before[b]) {
        components.Join(pair.a, pair.b);
        taken[a] = true;
        taken[b] = true;
      }
    }
  }
  std::map<int, std::vector<int>> islands;
  for (int worker = 0; worker < links.size(); ++worker) {
    islands[components.Root(worker)].push_back(worker);
  }
  std::vector<std::vector<int>> result;
  result.reserve(islands.size());
  for (auto& [root, members] : islands) {
    result.push_back(std::move(members));
  }
  return result;
}

}  // namespace heddle::comm
