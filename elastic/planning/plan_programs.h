/// \file
/// The programs of a plan, checked before anybody is asked to run them.
#pragma once

#include <vector>

#include "base/status.h"
#include "elastic/control/planning.h"
#include "engine/program/program.h"

namespace heddle::elastic {

/// Fills in what the coordinator needs to know of a plan's programs: their hashes and parameters,
/// by rank. Programs of more than 64 workers are checked by class (program::VerifyScope). Errors:
/// kInternal: the programs do not fit each other, and nobody may run them.
Status TakePrograms(const graph::Graph& graph,
                    const program::Plan& plan,
                    const std::vector<program::Program>& programs,
                    PlanOutcome& outcome);

}  // namespace heddle::elastic
