/// \file
/// The reference interpreter of Programs in doubles: all workers of a plan, members of groups among
/// them, in one thread, with plain maps in place of communication. It knows what instructions,
/// exchanges and local graphs mean, and shares no code with what lowers, verifies or runs them.
#pragma once

#include <vector>

#include "engine/program/program.h"
#include "tests/support/program/training_step.h"

namespace heddle::testing {

/// The graphs that the Programs of a plan's workers name, by rank.
std::vector<graph::Graph> MemberGraphs(const graph::Graph& graph, const program::Plan& plan);

/// Runs one step. `graphs`: those of the workers. Refused are, by worker and instruction: a value
/// that is read before it is there, after it was freed or while it is in flight, or that has another
/// shape than its slot; members that make unlike exchanges, or in another order; a compute copy that is read before it
/// is gathered; losses, norms and
/// updates that are missing or there twice; holders that end with unlike bits; waits without end.
DenseOutcome RunPrograms(const graph::Graph& graph,
                         const std::vector<graph::Graph>& graphs,
                         const std::vector<program::Program>& programs,
                         const DenseStep& step);

}  // namespace heddle::testing
