/// \file
/// Lowers a Graph to the Programs of a Plan's workers. The schedule is 1F1B (PipeDream-Flush,
/// Narayanan et al. 2021) with stages of different sizes, and as many extra forwards as the Plan
/// says (Stage::ahead). The operators' sharding rules determine what is summed over microbatches
/// and workers: activations are sharded over the microbatch axis and parameters are replicated;
/// tensors that are then Partial need a reduction. Members of a group run the graphs that their
/// layout makes of the job's (stage_graph.h), and exchange what these need.
#pragma once

#include "base/status.h"
#include "engine/program/program.h"

namespace heddle::program {

/// The program of one worker. A graph without gradients (evaluation) gives forward passes and a
/// vote with losses only. Cost: one pass over the graph, the worker's own instructions, and its
/// parameters times pipelines. Errors: kInvalidArgument (the plan does not fit the graph, see
/// ValidatePlan and CheckPieces; or weight gradients and loss are not Partial by the operators'
/// rules).
Result<Program> Lower(const graph::Graph& graph, const Plan& plan, int rank);

/// The programs of all workers, by rank. On large models each has some megabytes; for tests and
/// small clusters.
Result<std::vector<Program>> LowerAll(const graph::Graph& graph, const Plan& plan);

}  // namespace heddle::program
