/// \file
/// The layout of the state, as boxes by worker derived from the Plan, and the transfers for a
/// change of the Plan. Resharding, checkpoints, migration and recovery are one operation: intersect
/// two sets of boxes and move what differs.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "engine/program/plan.h"

namespace heddle::program {

/// Roles of a parameter's state, in the order in which they are stored.
enum class StateRole : uint8_t { kMaster, kExpAvg, kExpAvgSq };
inline constexpr std::array<StateRole, 3> kStateRoles = {StateRole::kMaster, StateRole::kExpAvg,
                                                         StateRole::kExpAvgSq};
std::string_view StateRoleName(StateRole role);  ///< "master", "exp_avg" or "exp_avg_sq".

struct StateBox {
  graph::ParameterId parameter = -1;
  StateRole role = StateRole::kMaster;
  Box box = {};
  friend bool operator==(const StateBox&, const StateBox&) = default;
};

/// The boxes that each worker holds, by rank. Replicas appear with every holder.
using StateLayout = std::vector<std::vector<StateBox>>;

StateLayout LayoutOf(const graph::Graph& graph, const Plan& plan);

/// The layout with one owner for every box, which writes it in a checkpoint. A plan assigns compute
/// to workers by their speed, so boxes are assigned to their holders in proportion to that compute
/// (largest box first, to the holder that would end first), and a save takes about the same part of
/// each worker's time. Only integers are used, so that every worker computes the same owners.
StateLayout OwnedLayout(const graph::Graph& graph, const Plan& plan);

/// A transfer of `box` of (parameter, role) from worker `source` to worker `target`, by name. An
/// empty source means the checkpoint.
struct Transfer {
  graph::ParameterId parameter = -1;
  StateRole role = StateRole::kMaster;
  Box box = {};
  std::string source = {};
  std::string target = {};
};

/// The valid boxes that a worker, given by name, holds now.
struct HeldState {
  std::string worker = {};
  std::vector<StateBox> boxes = {};
};
/// The transfers after which every worker holds its boxes of the plan `next`. `held` lists the
/// boxes of the survivors, all of one common step. Sources are chosen to minimise the load of the
/// most loaded sender (greedily by bytes). A box that no survivor holds has an empty source.
std::vector<Transfer> PlanTransfers(const graph::Graph& graph,
                                    const std::vector<HeldState>& held,
                                    const Plan& next);

/// Checks that `given`, the boxes that a worker holds and those sent to it, cover every element of
/// `wanted` exactly once, and no other. Errors: kInternal.
Status CheckCoverage(const graph::Graph& graph,
                     const std::vector<StateBox>& wanted,
                     const std::vector<StateBox>& given);

int64_t TransferBytes(const graph::Graph& graph, const std::vector<Transfer>& transfers);

}  // namespace heddle::program
