/// \file
/// Who has which boxes of the state that a move begins with.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "elastic/protocol/protocol.pb.h"
#include "engine/graph/graph.h"
#include "engine/program/state.h"

namespace heddle::elastic {

/// The boxes that the valid workers hold under the plan they come from.
std::vector<program::HeldState> HeldBoxes(const graph::Graph& graph,
                                          const program::Plan& plan,
                                          const wire::Start::Held& held);

/// The boxes that the holders have in shards of the snapshot. Errors: kInternal, those of the plan.
Result<std::vector<program::HeldState>> ReplicatedBoxes(const graph::Graph& graph,
                                                        const wire::Start::Replicas& replicas);

/// What both have, in the order of `wanted`.
std::vector<program::StateBox> CommonBoxes(std::span<const program::StateBox> wanted,
                                           std::span<const program::StateBox> held);

}  // namespace heddle::elastic
