/// \file
/// Where state lives: boxes by worker, derived from the Plan; and what must move when the Plan
/// changes. Resharding, checkpoints, migration and recovery are one operation: intersect two sets
/// of boxes and move what differs.
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
std::string_view StateRoleName(StateRole role);  ///< "master", "exp_avg", "exp_avg_sq"

struct StateBox {
  graph::ParameterId parameter = -1;
  StateRole role = StateRole::kMaster;
  Box box = {};
  friend bool operator==(const StateBox&, const StateBox&) = default;
};

/// layout[rank]: the boxes that worker holds. Replicas appear with every holder.
using StateLayout = std::vector<std::vector<StateBox>>;

StateLayout LayoutOf(const graph::Graph& graph, const Plan& plan);

/// layout[rank] reduced to one owner of every box: who writes what in a checkpoint. A plan gives
/// each worker compute by its speed, so the holders of a box share what they write in proportion to
/// the compute that the plan gives them (largest first, to the one that would end first): a save
/// takes about the same part of everyone's time. Integers only: every worker gets the same owners.
StateLayout OwnedLayout(const graph::Graph& graph, const Plan& plan);

/// One piece to move: `box` of (parameter, role) from worker `source` to `target` (names; source
/// empty: from the checkpoint).
struct Transfer {
  graph::ParameterId parameter = -1;
  StateRole role = StateRole::kMaster;
  Box box = {};
  std::string source = {};
  std::string target = {};
};

/// What must move so that every worker holds its boxes of the new plan. `held` says which workers
/// hold valid boxes now (by name; survivors of one common step). Sources are chosen so that the
/// most loaded sender sends the least (greedy over bytes). Missing everywhere: source is empty.
struct HeldState {
  std::string worker = {};
  std::vector<StateBox> boxes = {};
};
std::vector<Transfer> PlanTransfers(const graph::Graph& graph,
                                    const std::vector<HeldState>& held,
                                    const Plan& next);

/// Whether `given`, the boxes that a worker has and those that come to it, are `wanted`: every
/// element of it exactly once, and no other. Errors: kInternal.
Status CheckCoverage(const graph::Graph& graph,
                     const std::vector<StateBox>& wanted,
                     const std::vector<StateBox>& given);

int64_t TransferBytes(const graph::Graph& graph, const std::vector<Transfer>& transfers);

}  // namespace heddle::program
