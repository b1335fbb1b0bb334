/// \file
/// How many microbatches each pipeline computes: exact integer minimax.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::planner {

/// One way to run a pipeline: m > 0 microbatches take (m - 1) · period + fill seconds.
struct Pace {
  double period = 0;
  double fill = 0;
  double Seconds(int64_t microbatches) const {
    return microbatches <= 0 ? 0 : static_cast<double>(microbatches - 1) * period + fill;
  }
};

struct Shares {
  std::vector<int> microbatches;  ///< By pipeline; 0 where it would slow the others.
  double seconds = 0;             ///< Of the slowest pipeline.
};

/// The shares of `microbatches` over `pipelines` that minimise the largest time, each pipeline
/// taking the better of its own `alternatives` (not empty, period > 0) for its share.
///
/// A bound T is feasible exactly if the numbers that each pipeline completes within T sum up to
/// enough, which is monotone in T: the search is a bisection over T, whose final surplus is taken
/// back from the pipelines that finish last. Exact up to the last bit of the bisection. Cost:
/// O(pipelines · 64). Thread: pure.
Shares BalanceShares(std::span<const std::span<const Pace>> pipelines, int microbatches);

}  // namespace heddle::planner
