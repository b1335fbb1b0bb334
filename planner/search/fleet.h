/// \file
/// Candidates for many workers, from a linear program over pipeline compositions instead of all
/// divisions.
#pragma once

#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Returns candidates for a cluster with too many divisions to visit. Cost: seconds for thousands
/// of workers.
///
/// Workers of about equal speed and memory form at most a few classes. For a step time T, a
/// pipeline of composition j completes m_j(T) microbatches; the number x_j of such pipelines is the
/// solution of
///     maximise Σ m_j(T) x_j   subject to   Σ x_j · workers of class c in j <= workers of class c,
/// which has at most as many non-zero x_j as classes. T is found by bisection. The x_j are rounded
/// down, and the few workers left are given the compositions that complete the most microbatches.
/// This is repeated with a least depth of 1, 2, 4, … stages, since deeper pipelines are fewer and
/// reduce fewer gradients. Each pipeline is then cut again for its own workers. Up to 64 workers
/// are also dealt by speed, back and forth, to 1, 2, … pipelines: classes are too coarse for a few
/// dozen different workers.
std::vector<program::Plan> FleetPlans(const Problem& problem, const WorkerClasses& exact);

}  // namespace heddle::planner
