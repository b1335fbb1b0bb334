#include "planner/search/shares.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "base/check.h"

namespace heddle::planner {
namespace {

double Best(std::span<const Pace> alternatives, int64_t microbatches) {
  double best = alternatives.front().Seconds(microbatches);
  for (const Pace& alternative : alternatives) {
    best = std::min(best, alternative.Seconds(microbatches));
  }
  return best;
}

int64_t CompletedWithin(std::span<const Pace> alternatives, double bound, int microbatches) {
  int64_t most = 0;
  for (const Pace& alternative : alternatives) {
    if (alternative.fill <= bound) {
      const double count = std::floor((bound - alternative.fill) / alternative.period) + 1;
      most = std::max(most, static_cast<int64_t>(std::min<double>(count, microbatches)));
    }
  }
  return most;
}

int64_t TotalWithin(std::span<const std::span<const Pace>> pipelines,
                    double bound,
                    int microbatches) {
  int64_t total = 0;
  for (const auto& alternatives : pipelines) {
    total += CompletedWithin(alternatives, bound, microbatches);
  }
  return total;
}

}  // namespace

Shares BalanceShares(std::span<const std::span<const Pace>> pipelines, int microbatches) {
  HEDDLE_CHECK(!pipelines.empty() && microbatches > 0);
  double high = Best(pipelines.front(), microbatches);
  for (const auto& alternatives : pipelines) {
    high = std::min(high, Best(alternatives, microbatches));
  }
  high *= 1 + 1e-12;  // Division may round the count at the exact bound down.
  double low = 0;
  for (int i = 0; i < 64 && high - low > high * 1e-13; ++i) {
    const double middle = low + (high - low) / 2;
    (TotalWithin(pipelines, middle, microbatches) >= microbatches ? high : low) = middle;
  }
  Shares shares;
  int64_t surplus = -microbatches;
  // Last to finish first; ties go to the later pipeline.
  std::priority_queue<std::pair<double, size_t>> last;
  for (size_t p = 0; p < pipelines.size(); ++p) {
    const int64_t count = CompletedWithin(pipelines[p], high, microbatches);
    shares.microbatches.push_back(static_cast<int>(count));
    surplus += count;
    if (count > 0) {
      last.emplace(Best(pipelines[p], count), p);
    }
  }
  for (; surplus > 0; --surplus) {
    const size_t p = last.top().second;
    last.pop();
    if (--shares.microbatches[p] > 0) {
      last.emplace(Best(pipelines[p], shares.microbatches[p]), p);
    }
  }
  for (size_t p = 0; p < pipelines.size(); ++p) {
    shares.seconds = std::max(shares.seconds, Best(pipelines[p], shares.microbatches[p]));
  }
  return shares;
}

}  // namespace heddle::planner
