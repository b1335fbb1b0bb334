/// \file
/// Predicts what the processes of a plan's workers take of their hosts' memory.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/job/job.h"
#include "engine/program/plan.h"
#include "engine/program/program.h"
#include "planner/search/search.h"

namespace heddle::elastic {

/// Returns the most bytes that the process of each worker, by rank, has in memory while it trains:
/// what it measured beside tensors, kernels' temporaries, state, values, memory that it shares with
/// others, and the copies that saves and snapshots take of the state, which count as not compressed.
/// Empty: what some worker's process takes beside tensors is not known. `programs`: those of `plan`.
std::vector<int64_t> ProcessBytes(const job::JobConfig& job,
                                  const graph::Graph& graph,
                                  const program::Plan& plan,
                                  const std::vector<program::Program>& programs,
                                  const planner::ClusterProfile& cluster);

}  // namespace heddle::elastic
