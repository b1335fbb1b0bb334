/// \file
/// Checks the programs of a plan before workers are asked to run them.
#pragma once

#include <vector>

#include "base/status.h"
#include "elastic/control/planning.h"
#include "engine/program/program.h"

namespace heddle::elastic {

/// Fills in program_hashes, parameters and parameter_count of `outcome`, and verifies the programs.
/// Programs of more than 64 workers are verified by class (program::VerifyScope). Errors:
/// kInternal: the programs do not fit each other and must not be run.
Status TakePrograms(const graph::Graph& graph,
                    const program::Plan& plan,
                    const std::vector<program::Program>& programs,
                    PlanOutcome& outcome);

}  // namespace heddle::elastic
