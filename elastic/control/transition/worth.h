/// \file
/// What a change of plan is worth while the plan in force trains. The steps of the plan in force
/// are measured, those of the new plan are only predicted: predictions are scaled by the planner's
/// error for the plan in force.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {

/// The result of weighing a plan.
struct Worth {
  bool changes = false;            ///< The new plan is to be put in force.
  std::string reason;              ///< Why, or why not, in words.
  std::vector<Alternative> plans;  ///< With the seconds of the rest of the job.
  double cost_seconds = 0;         ///< Predicted seconds without training.
  double step_seconds = 0;         ///< Predicted seconds of a step of the new plan, scaled.
  /// Measured over predicted seconds of a step of the plan in force. nullopt: too few steps were
  /// measured, and nothing is scaled. The prediction is with the workers' speeds as known now, so
  /// what Drift has measured does not count twice.
  std::optional<double> scale;
};

/// Weighs the plan that was found for a change.
Worth WorthOf(const PlanOutcome& outcome,
              const Transition& transition,
              const TransitionContext& context);

}  // namespace heddle::elastic
