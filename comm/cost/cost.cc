#include "comm/cost/cost.h"

#include <algorithm>
#include <vector>

namespace heddle::comm {

namespace {

/// Smallest slice that is worth an owner of its own.
constexpr int64_t kSliceBytes = int64_t{16} << 10;
/// A gather's first message has this size whatever the record (comm/collective/tree_gather.cc).
constexpr int64_t kGatherHeadBytes = 1024;
/// Pieces in which bulk is pipelined (comm/collective/collective.h).
constexpr int64_t kPieceBytes = int64_t{256} << 10;

double Bandwidth(const LinkTable& links, int from, int to, double bytes) {
  return bytes / links.At(from, to).bytes_per_second;
}

double WorstLatency(const LinkTable& links, std::span<const int> group) {
  double latency = 0;
  for (const int from : group) {
    for (const int to : group) {
      if (from != to) {
        latency = std::max(latency, links.At(from, to).latency_seconds);
      }
    }
  }
  return latency;
}

// Of a reproducible reduction. `slices`: bytes that each member adds up. `results`: they travel to
// all.
double TreeSeconds(const LinkTable& links,
                   std::span<const int> group,
                   std::span<const int> contributions,
                   const std::vector<double>& slices,
                   bool results) {
  const double largest =
      std::min(*std::ranges::max_element(slices), static_cast<double>(kPieceBytes));
  double worst = 0;
  double piece = 0;
  for (size_t own = 0; own < group.size(); ++own) {
    double sending = 0;
    double receiving = 0;
    for (size_t other = 0; other < group.size(); ++other) {
      if (other == own) {
        continue;
      }
      // To a slice's owner go all own partial sums of it; from an owner comes its slice's result.
      const double out = contributions[own] * slices[other] + (results ? slices[own] : 0);
      const double in = contributions[other] * slices[own] + (results ? slices[other] : 0);
      sending += Bandwidth(links, group[own], group[other], out);
      receiving += Bandwidth(links, group[other], group[own], in);
      piece = std::max(piece, Bandwidth(links, group[own], group[other], largest));
    }
    worst = std::max({worst, sending, receiving});
  }
  // Contributions and results overlap piece by piece, in opposite directions of each link. A slice
  // of one piece has nothing to overlap with; the time of one more piece accounts for that.
  return 2 * WorstLatency(links, group) + worst + (results ? piece : 0);
}

}  // namespace

int ReduceTreeOwners(int members, int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>(bytes / kSliceBytes, 1, members));
}

double ReduceTreeSeconds(const LinkTable& links,
                         std::span<const int> group,
                         std::span<const int> contributions,
                         int64_t bytes) {
  if (group.size() < 2 || bytes == 0) {
    return 0;
  }
  // The owners of a small tensor follow from its tag, which is not known here: the first ones stand
  // for all.
  const auto owners = static_cast<size_t>(ReduceTreeOwners(static_cast<int>(group.size()), bytes));
  std::vector<double> slices(group.size(), 0);
  std::fill_n(slices.begin(), owners, static_cast<double>(bytes) / static_cast<double>(owners));
  return TreeSeconds(links, group, contributions, slices, /*results=*/true);
}

double ReduceScatterTreeSeconds(const LinkTable& links,
                                std::span<const int> group,
                                std::span<const int> contributions,
                                std::span<const int64_t> shares) {
  if (group.size() < 2) {
    return 0;
  }
  return TreeSeconds(links, group, contributions, {shares.begin(), shares.end()},
                     /*results=*/false);
}

double AllGatherBytesSeconds(const LinkTable& links, int64_t bytes) {
  // Up the tree: a parent waits for both children, whose subtrees came in parallel; down: the
  // whole.
  const int size = links.size();
  if (size < 2) {
    return 0;
  }
  std::vector<double> ready(static_cast<size_t>(size), 0.0);
  std::vector<int64_t> members(static_cast<size_t>(size), 1);
  for (int rank = size - 1; rank > 0; --rank) {
    const auto own = static_cast<size_t>(rank);
    const auto parent = static_cast<size_t>((rank - 1) / 2);
    const int64_t message = std::max(kGatherHeadBytes, bytes * members[own]);
    ready[parent] =
        std::max(ready[parent], ready[own] + links.At(rank, (rank - 1) / 2).Seconds(message));
    members[parent] += members[own];
  }
  const int64_t whole = std::max(kGatherHeadBytes, bytes * size);
  std::vector<double> announced(static_cast<size_t>(size), ready[0]);
  double last = ready[0];
  for (int rank = 1; rank < size; ++rank) {
    const int parent = (rank - 1) / 2;
    // A parent serves its left child first.
    const double turn = rank % 2 == 1 ? 1 : 2;
    const Link& link = links.At(parent, rank);
    announced[static_cast<size_t>(rank)] =
        announced[static_cast<size_t>(parent)] + link.latency_seconds +
        turn * static_cast<double>(whole) / link.bytes_per_second;
    last = std::max(last, announced[static_cast<size_t>(rank)]);
  }
  return last;
}

}  // namespace heddle::comm
