/// \file
/// Uses a previous plan for the next one: as candidates, and to let workers keep their segments.
/// The previous plan must be valid for the problem's graph.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Returns `previous` for the problem's ranks, with nothing computed ahead. Nullopt if the worker
/// of a stage is lost, the number of microbatches differs, or a stage no longer fits.
std::optional<program::Plan> InForce(const Problem& problem, const program::Plan& previous);

/// Returns plans that keep what is left of `previous`: one with its complete pipelines and new
/// shares, and one with all of its pipelines, cut again for the workers left. Empty if no pipeline
/// can run.
std::vector<program::Plan> PlansFrom(const Problem& problem, const program::Plan& previous);

/// Returns `plan` with exchangeable workers exchanged so that more of them keep their segments of
/// `previous`.
program::Plan KeepPlaces(const Problem& problem,
                         const WorkerClasses& exact,
                         const program::Plan& previous,
                         program::Plan plan);

/// The seconds of moving the state from the workers of `previous` that are left to those of `plan`:
/// the longest total of a worker's incoming or outgoing transfers. State that no worker holds does
/// not count.
double MovingSeconds(const Problem& problem,
                     const program::Plan& previous,
                     const program::Plan& plan);

}  // namespace heddle::planner
