#include "planner/predictor/exchange_cost.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "comm/cost/cost.h"

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

}  // namespace heddle::planner
