/// \file
/// Cuts a Graph over a Plan's workers. Schedule: 1F1B (PipeDream-Flush, Narayanan et al. 2021) with
/// stages of unlike size. What is summed across microbatches and workers follows from the
/// operators' sharding rules: activations are sharded over the microbatch axis, parameters
/// replicated; what a rule then says is Partial needs a reduction.
#pragma once

#include "base/status.h"
#include "engine/program/program.h"

namespace heddle::program {

/// Errors: kInvalidArgument (the plan does not fit the graph; see ValidatePlan).
Result<Program> Lower(const graph::Graph& graph, const Plan& plan, int rank);

/// All workers' programs, by rank.
Result<std::vector<Program>> LowerAll(const graph::Graph& graph, const Plan& plan);

}  // namespace heddle::program
