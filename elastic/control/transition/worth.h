/// \file
/// What a change of plan is worth, while the plan in force trains. That one is known by what its
/// steps take, the other one by its prediction alone: predictions are scaled by what the planner
/// was wrong by for the plan in force.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {

struct Worth {
  bool changes = false;
  std::string reason;
  std::vector<Alternative> plans;  ///< Seconds of the rest of the job.
  double cost_seconds = 0;         ///< For which nobody trains.
  double step_seconds = 0;         ///< Of the plan that was found, scaled.
  /// Measured over predicted seconds of a step of the plan in force; none: too few were measured,
  /// and nothing is scaled. Both are as the workers' speeds are known now: what Drift has measured
  /// of a worker is in the prediction, and does not count twice.
  std::optional<double> scale;
};

/// Weighs the plan that the change under way has found.
Worth WorthOf(const PlanOutcome& outcome, const Transition& transition, const Scene& scene);

}  // namespace heddle::elastic
