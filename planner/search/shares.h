/// \file
/// Divides microbatches among pipelines: exact integer minimax.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::planner {

/// The speed of a pipeline: m > 0 microbatches take (m - 1) · period + fill seconds.
struct Pace {
  double period = 0;
  double fill = 0;
  double Seconds(int64_t microbatches) const {
    return microbatches <= 0 ? 0 : static_cast<double>(microbatches - 1) * period + fill;
  }
};

/// A division of microbatches.
struct Shares {
  std::vector<int> microbatches;  ///< By pipeline; 0 if any would make it the slowest.
  double seconds = 0;             ///< Time of the slowest pipeline.
};

/// Returns the shares of `microbatches` over `pipelines` that minimise the largest time. Each
/// pipeline takes the best of its paces (not empty, period > 0) for its share. Cost:
/// O(pipelines · 64). Thread: pure.
///
/// A bound T is feasible exactly if the numbers of microbatches that each pipeline completes within
/// T add up to enough, which is monotone in T. So T is found by bisection, and the surplus is taken
/// back from the pipelines that finish last. Exact up to the last bit of the bisection.
Shares BalanceShares(std::span<const std::span<const Pace>> pipelines, int microbatches);

}  // namespace heddle::planner
