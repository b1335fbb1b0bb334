/// \file
/// The workers that hold the state at the begin of a move, with their boxes.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "elastic/protocol/protocol.pb.h"
#include "engine/graph/graph.h"
#include "engine/program/state.h"
#include "engine/runtime/parameter_state.h"

namespace heddle::elastic {

/// The boxes that the workers named in `held` hold under `plan`, the plan of their state.
std::vector<program::HeldState> HeldBoxes(const graph::Graph& graph,
                                          const program::Plan& plan,
                                          const wire::Start::Held& held);

/// The boxes that the holders have in shards of the snapshot. Errors: kInternal (a holder's owner
/// is not a rank of the plan), those of reading the plan.
Result<std::vector<program::HeldState>> ReplicatedBoxes(const graph::Graph& graph,
                                                        const wire::Start::Replicas& replicas);

/// What both have, in the order of `wanted`.
std::vector<program::StateBox> CommonBoxes(std::span<const program::StateBox> wanted,
                                           std::span<const program::StateBox> held);

/// Copies `boxes` from a state that a worker has to the one that it will have, except those of
/// parameters of which both hold the same part, which they share. Errors: the device's.
Status CopyBoxes(const graph::Graph& graph,
                 const runtime::ParameterState& from,
                 std::span<const program::StateBox> boxes,
                 runtime::ParameterState& to);

}  // namespace heddle::elastic
