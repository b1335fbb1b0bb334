/// \file
/// Many workers: a linear program over pipeline compositions instead of all divisions.
#pragma once

#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// Candidates for a cluster whose divisions are too many to visit.
///
/// Workers of about equal speed and memory form at most a few classes. For a step time T, a
/// pipeline of composition j completes m_j(T) microbatches; the number x_j of each is the solution
/// of
///     maximise Σ m_j(T) x_j   subject to   Σ x_j · workers of class c in j <= workers of class c,
/// which has as many non-zero x_j as classes. T is found by bisection; the x_j are rounded down and
/// the few workers left are given the compositions that complete the most. Repeated with a least
/// depth of 1, 2, 4, … stages, since deeper pipelines are fewer and reduce fewer gradients. Each
/// pipeline's cuts are computed anew for its own workers. Beside these, the workers are dealt by
/// speed, to and fro, to 1, 2, … pipelines: with a few dozen workers of which no two are alike,
/// classes are too coarse. Cost: seconds for thousands of workers.
std::vector<program::Plan> FleetPlans(const Problem& problem, const WorkerClasses& exact);

}  // namespace heddle::planner
