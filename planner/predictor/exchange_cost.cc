#include "planner/predictor/exchange_cost.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "comm/cost/cost.h"
#include "engine/program/memory.h"

namespace heddle::planner {

using graph::ExchangeForm;

namespace {

/// The members' parts of `total` bytes, as their ranges divide it.
comm::ShareSizes SizesOf(int64_t total, const std::vector<graph::Range>& ranges) {
  int64_t sum = 0;
  int64_t largest = 0;
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const graph::Range& range : ranges) {
    const int64_t length = range.end - range.begin;
    sum += length;
    largest = std::max(largest, length);
    smallest = std::min(smallest, length);
  }
  const auto share = [&](int64_t length) {
    return static_cast<int64_t>(static_cast<double>(total) * static_cast<double>(length) /
                                static_cast<double>(std::max<int64_t>(sum, 1)));
  };
  return {.total = total, .largest = share(largest), .smallest = share(smallest)};
}

comm::ShareSizes SizesOf(std::span<const int64_t> shares) {
  return {.total = std::accumulate(shares.begin(), shares.end(), int64_t{0}),
          .largest = *std::ranges::max_element(shares),
          .smallest = *std::ranges::min_element(shares)};
}

/// The pairs of a group whose devices all read each other's memory.
struct Peers {
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double latency_seconds = 0;
};

/// Nothing: a device does not read all others, or there are more contributions than one adds.
std::optional<Peers> PeersOf(const comm::LinkTable& links,
                             std::span<const int> group,
                             std::span<const int> contributions) {
  if (std::accumulate(contributions.begin(), contributions.end(), 0) > program::kMostSumAddends) {
    return std::nullopt;
  }
  Peers peers;
  for (const int reader : group) {
    for (const int owner : group) {
      if (reader == owner) {
        continue;
      }
      const comm::Link& link = links.At(owner, reader);
      if (link.peer_bytes_per_second == 0) {
        return std::nullopt;
      }
      peers.bytes_per_second = std::min(peers.bytes_per_second, link.peer_bytes_per_second);
      peers.latency_seconds = std::max(peers.latency_seconds, link.latency_seconds);
    }
  }
  return peers;
}

/// Seconds in which the devices make a sum, of which each adds one of `slices`; `gathered`: each then
/// reads those of the others, too.
double PeerSumSeconds(const Peers& peers,
                      std::span<const int> contributions,
                      comm::ShareSizes slices,
                      bool gathered) {
  const int64_t all = std::accumulate(contributions.begin(), contributions.end(), int64_t{0});
  const auto [least, most] = std::ranges::minmax(contributions);
  const int64_t read =
      slices.largest * (all - least) + (gathered ? slices.total - slices.smallest : 0);
  const int64_t half = program::kMostSumBytes / 2;
  const int64_t pieces = (slices.total * std::max(most, 1) + half - 1) / half;
  // The members meet twice a piece, each time there and back.
  return 4 * static_cast<double>(pieces) * peers.latency_seconds +
         static_cast<double>(read) / peers.bytes_per_second;
}

}  // namespace

bool Communicates(ExchangeForm form) {
  return form != ExchangeForm::kSlice && form != ExchangeForm::kFill;
}

double ExchangeSeconds(const comm::LinkTable& links,
                       std::span<const int> group,
                       const graph::Exchange& exchange,
                       int64_t sent,
                       int64_t received) {
  std::vector<int> ranks(group.begin(), group.end());
  std::ranges::sort(ranks);
  const auto flat = comm::FlatLinks::Of(links, ranks);
  switch (exchange.form) {
    case ExchangeForm::kGather:
      return flat.AllGather(SizesOf(received, exchange.sent)).seconds;
    case ExchangeForm::kScatter:
      return flat.ReduceScatter(SizesOf(sent, exchange.received), 1).seconds;
    default:
      return comm::AllReduceSeconds(links, ranks, std::max(sent, received));
  }
}

double GatherSeconds(const comm::LinkTable& links,
                     std::span<const int> group,
                     std::span<const int64_t> shares) {
  return comm::FlatLinks::Of(links, group).AllGather(SizesOf(shares)).seconds;
}

double ScatterSeconds(const comm::LinkTable& links,
                      std::span<const int> group,
                      std::span<const int64_t> shares) {
  return comm::FlatLinks::Of(links, group).ReduceScatter(SizesOf(shares), 1).seconds;
}

double TreeSumSeconds(const comm::LinkTable& links,
                      std::span<const int> group,
                      std::span<const int> contributions,
                      int64_t bytes) {
  if (const auto peers = PeersOf(links, group, contributions)) {
    const auto slices = comm::ShareSizes::Even(bytes, static_cast<int>(group.size()));
    return PeerSumSeconds(*peers, contributions, slices, /*gathered=*/true);
  }
  return comm::ReduceTreeSeconds(links, group, contributions, bytes);
}

double TreeScatterSeconds(const comm::LinkTable& links,
                          std::span<const int> group,
                          std::span<const int> contributions,
                          std::span<const int64_t> shares) {
  if (const auto peers = PeersOf(links, group, contributions)) {
    return PeerSumSeconds(*peers, contributions, SizesOf(shares), /*gathered=*/false);
  }
  return comm::ReduceScatterTreeSeconds(links, group, contributions, shares);
}

}  // namespace heddle::planner
