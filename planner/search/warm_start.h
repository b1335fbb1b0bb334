/// \file
/// What a previous plan gives the next: candidates, and workers that keep their segments.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/problem.h"

namespace heddle::planner {

/// `previous` as it is; nothing when a worker of it is lost, the microbatches are others, or its
/// stages no longer fit.
std::optional<program::Plan> InForce(const Problem& problem, const program::Plan& previous);

/// Plans that keep what is left of `previous`: its whole pipelines with new shares, and all of its
/// pipelines with lost workers' segments cut anew. Empty when nothing of it can run.
std::vector<program::Plan> PlansFrom(const Problem& problem, const program::Plan& previous);

/// The same plan with exchangeable workers exchanged so that more of them keep their segments.
program::Plan KeepPlaces(const Problem& problem,
                         const WorkerClasses& exact,
                         const program::Plan& previous,
                         program::Plan plan);

/// Seconds to bring the state where `plan` wants it, from `previous` by its surviving workers: the
/// longest of all workers' incoming and outgoing transfers; state that nobody holds is not counted.
double MovingSeconds(const Problem& problem,
                     const program::Plan& previous,
                     const program::Plan& plan);

}  // namespace heddle::planner
