#include "elastic/control/transition/worth.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

// What a change costs beside moving bytes: stopping, connecting, the first step's cold caches.
constexpr double kFixedChangeSeconds = 0.1;
// A gain below this is within the error of the prediction.
constexpr double kLeastGain = 0.02;

std::string SayScale(const Worth& worth, const StepTimes& times) {
  return worth.scale
             ? fmt::format("; predictions are scaled by {:.3g}, as the plan in force measures",
                           *worth.scale)
             : fmt::format("; nothing is scaled: {} steps were measured, and {} are needed",
                           times.counted(), StepTimes::kLeast);
}

}  // namespace

Worth WorthOf(const PlanOutcome& outcome,
              const Transition& transition,
              const TransitionContext& context) {
  const JobPolicy& policy = context.job.policy;
  const StepTimes& times = context.steps.times();
  const double predicted = outcome.current_step_seconds > 0
                               ? outcome.current_step_seconds
                               : context.generations.held()->plan.predicted_step_seconds;
  Worth worth;
  if (const auto measured = times.Newest(); measured && predicted > 0) {
    worth.scale = measured->seconds / predicted;
  }
  const double current = predicted * worth.scale.value_or(1);
  worth.step_seconds = outcome.predicted_step_seconds * worth.scale.value_or(1);
  worth.cost_seconds = outcome.move_seconds + kFixedChangeSeconds;
  const auto horizon = static_cast<double>(policy.total_steps - context.steps.known());
  const double gain = (current - worth.step_seconds) * horizon;
  const double cost = worth.cost_seconds;
  const double least =
      transition.for_drift ? std::max(kLeastGain, context.drift.noise()) : kLeastGain;
  worth.plans = {{.what = "keep", .seconds = current * horizon},
                 {.what = "replan", .seconds = worth.step_seconds * horizon + cost}};
  if (const auto& former = transition.former) {
    worth.plans.back().seconds = former->step_seconds * horizon + cost;
    worth.changes = true;
    worth.reason = fmt::format(
        "a step takes {:.4g} s, and took {:.4g} s with the plan before, which comes in force again",
        current, former->step_seconds);
    return worth;
  }
  if (transition.In<Planning>()->forced) {
    worth.plans.front() = {.what = "keep", .note = "a member leaves"};
    worth.changes = true;
    worth.reason = "the generation cannot go on without who leaves";
    return worth;
  }
  if (worth.step_seconds >= (1 - least) * current) {
    worth.reason = fmt::format(
        "a step would take {:.4g} s instead of {:.4g} s: less than the {:.2g} % that a prediction "
        "may be wrong by",
        worth.step_seconds, current, 100 * least);
  } else {
    worth.changes = gain > policy.drift.gain_over_cost * cost;
    worth.reason = fmt::format(
        "{:.3g} s are saved in the {} steps that are left, {} than {:g} times the {:.3g} s that "
        "the change costs",
        gain, policy.total_steps - context.steps.known(), worth.changes ? "more" : "not more",
        policy.drift.gain_over_cost, cost);
  }
  worth.reason += SayScale(worth, times);
  if (worth.changes && transition.for_drift && policy.drift.action == DriftAction::kAdvise) {
    worth.changes = false;
    worth.reason += "; elastic.drift is advise: the plan stays";
  }
  return worth;
}

}  // namespace heddle::elastic
