/// \file
/// Few workers: every way to divide them into pipelines, each worker in one or left out.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/pipelines.h"
#include "planner/search/problem.h"

namespace heddle::planner {

/// A candidate on classes: indices into PipelineTable::compositions(), with repetition.
struct Division {
  std::vector<size_t> pipelines;
  double seconds = 0;  ///< Pipelines by pace, plus an estimate of the reductions.
};

/// The best divisions: at most `keep` for each number of pipelines, so that plans of every kind
/// reach the exact scoring; fastest first. Nothing when there are more than max_divisions, or when
/// the search is to stop.
///
/// Every multiset of compositions that the counts allow is visited once; what no composition takes
/// is left out.
std::optional<std::vector<Division>> BestDivisions(const Problem& problem,
                                                   const WorkerClasses& classes,
                                                   const PipelineTable& table,
                                                   size_t keep);

/// Puts workers (members of the classes in rank order) into the division's pipelines.
Draft DraftOf(const WorkerClasses& classes, const PipelineTable& table, const Division& division);

}  // namespace heddle::planner
