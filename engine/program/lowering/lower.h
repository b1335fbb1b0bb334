/// \file
/// Cuts a Graph over a Plan's workers. Schedule: 1F1B (PipeDream-Flush, Narayanan et al. 2021) with
/// stages of unlike size, and as many forwards ahead as the Plan says (Stage::ahead). What is
/// summed across microbatches and workers follows from the operators' sharding rules: activations
/// are sharded over the microbatch axis, parameters replicated; what a rule then says is Partial
/// needs a reduction.
#pragma once

#include "base/status.h"
#include "engine/program/program.h"

namespace heddle::program {

/// The program of one worker. A graph without gradients (evaluation) gives forward passes and a
/// vote with losses only. Cost: the graph once, the worker's own instructions, and its parameters
/// times pipelines. Errors: kInvalidArgument (the plan does not fit the graph, see ValidatePlan; or
/// the operators' rules do not make weight gradients and loss sums over microbatches).
Result<Program> Lower(const graph::Graph& graph, const Plan& plan, int rank);

/// All workers' programs, by rank. Some megabytes each on large models: for tests and small
/// clusters.
Result<std::vector<Program>> LowerAll(const graph::Graph& graph, const Plan& plan);

}  // namespace heddle::program
