/// \file
/// Candidates for few workers: all divisions of the workers into pipelines, each worker in one
/// pipeline or left out.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/pipelines.h"
#include "planner/search/problem.h"

namespace heddle::planner {

/// A division of classes of workers into pipelines.
struct Division {
  std::vector<size_t> pipelines;  ///< Indices into PipelineTable::compositions(), with repetition.
  double seconds = 0;             ///< Slowest pipeline by its pace, plus an estimate of reductions.
};

/// Returns the best divisions, fastest first: at most `keep` for each number of pipelines, so that
/// plans of every kind reach the exact scoring. Nullopt if there are more than max_divisions, or if
/// a stop is requested. Visits every multiset of compositions that the counts allow once; workers
/// that are in no composition are left out.
std::optional<std::vector<Division>> BestDivisions(const Problem& problem,
                                                   const WorkerClasses& classes,
                                                   const PipelineTable& table,
                                                   size_t keep);

/// Assigns workers, the members of the classes in rank order, to the division's pipelines.
Draft DraftOf(const WorkerClasses& classes, const PipelineTable& table, const Division& division);

}  // namespace heddle::planner
