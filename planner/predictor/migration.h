/// \file
/// Whether a better plan is worth the cost of moving to it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/program/plan.h"
#include "planner/predictor/cluster.h"

namespace heddle::planner {

struct MigrationQuestion {
  const graph::Graph* graph = nullptr;
  const program::Plan* current = nullptr;
  const program::Plan* next = nullptr;
  const ClusterProfile* cluster = nullptr;  ///< As measured now; holds the workers of both plans.
  int64_t moved_bytes = 0;     ///< State that changes its place (program::TransferBytes).
  int64_t horizon_steps = 0;   ///< Steps that the new plan is expected to last.
  double pause_seconds = 1.0;  ///< Fixed cost of a change of plan.
  double least_gain = 0.02;    ///< Relative; smaller gains are noise of the measurement.
};

struct MigrationDecision {
  bool migrate = false;
  double current_seconds = 0;  ///< Of a step, predicted.
  double next_seconds = 0;
  double cost_seconds = 0;  ///< Of moving: the pause, and the bytes over the slowest link in use.
  double gain_seconds = 0;  ///< (current - next) · horizon.
  std::string reason;       ///< One line.
};

/// Acts only when gain × horizon > cost of moving. The cost is an upper figure: all bytes over the
/// slowest link between two workers of the new plan, one after another. Errors: kInvalidArgument (a
/// plan does not fit the graph, or the cluster lacks one of its workers).
Result<MigrationDecision> ShouldMigrate(const MigrationQuestion& question);

}  // namespace heddle::planner
