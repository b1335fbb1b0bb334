/// \file
/// Improves a plan by local moves.
#pragma once

#include <functional>
#include <optional>

#include "planner/search/problem.h"

namespace heddle::planner {

/// A plan with the seconds of its step, simulated or estimated.
struct ScoredPlan {
  program::Plan plan;
  double seconds = 0;
};

/// Repeats local moves while one lowers `evaluate` by more than a millionth and `budget`, which is
/// counted down with each evaluation, is not used up. A move shifts one cut by a segment, moves a
/// few microbatches from one pipeline to another, exchanges the workers of two stages or of a stage
/// and an idle worker, or swaps the ranges of neighbouring pipelines. The first move that helps, in
/// a fixed order, is taken. Plans that exceed a worker's memory are not evaluated.
ScoredPlan Improve(const Problem& problem,
                   ScoredPlan start,
                   const std::function<double(const program::Plan&)>& evaluate,
                   int& budget);

/// Moves microbatches from pipelines whose workers lack the memory for their share, which the
/// number of partial sums grows with, to those that would finish them first. Nullopt if no shares
/// fit.
std::optional<program::Plan> RepairShares(const Problem& problem, const program::Plan& plan);

/// Switches recomputation on for exactly the stages that do not fit without. False: a stage does
/// not fit at all.
bool SettleMemory(const Problem& problem, program::Plan& plan);

/// True if every stage fits in its worker's memory.
bool FitsMemory(const Problem& problem, const program::Plan& plan);

/// Sets Stage::ahead, the forwards that each stage computes ahead, from the memory that the plan
/// leaves unused. They keep a pipeline from stalling while messages travel or a stage is late.
/// Every stage but a pipeline's last gets `most`, or as many as its worker's memory allows, but
/// never more than the stage before it, since the two would then take turns.
void GiveSlack(const Problem& problem, int most, program::Plan& plan);

}  // namespace heddle::planner
