/// \file
/// Local moves from a good plan to a better one.
#pragma once

#include <functional>
#include <optional>

#include "planner/search/problem.h"

namespace heddle::planner {

struct ScoredPlan {
  program::Plan plan;
  double seconds = 0;
};

/// Moves one cut by a segment, a few microbatches from one pipeline to another, or swaps
/// neighbouring stages' workers or pipelines' ranges, as long as `evaluate` falls by more than a
/// millionth and is not asked more than `budget` times (counted down). Plans that break memory
/// limits are not offered. Ties: the first move in a fixed order.
ScoredPlan Improve(const Problem& problem,
                   ScoredPlan start,
                   const std::function<double(const program::Plan&)>& evaluate,
                   int& budget);

/// The plan with microbatches taken from pipelines whose workers lack the memory for their share
/// (partial sums grow with it) and given to those that finish first; nothing when no shares fit.
std::optional<program::Plan> RepairShares(const Problem& problem, const program::Plan& plan);

/// Switches recomputation on where memory demands it. False: some stage does not fit.
bool SettleMemory(const Problem& problem, program::Plan& plan);

/// Whether every stage fits its worker's memory.
bool FitsMemory(const Problem& problem, const program::Plan& plan);

/// Memory that a plan leaves unused buys slack: forwards computed ahead (Stage::ahead), so that a
/// pipeline does not stall while messages travel, nor when a stage is late. Every stage but a
/// pipeline's last computes `most` microbatches ahead, or as many as its worker's memory allows,
/// and never more than the stage before: the two would take turns. What stages had before is
/// forgotten.
void GiveSlack(const Problem& problem, int most, program::Plan& plan);

}  // namespace heddle::planner
