/// \file
/// Prices a Plan without lowering it: whole stages in 1F1B order under the event rules of the
/// simulator (schedule.h). It is thousands of times cheaper than Simulate and close to it: it
/// leaves out only the interleaving inside a stage.
#pragma once

#include <vector>

#include "engine/program/plan.h"
#include "planner/predictor/costs.h"
#include "planner/predictor/schedule.h"

namespace heddle::planner {

/// The costs that an estimate reads; what they point to outlives it.
struct EstimateInputs {
  const SegmentTable* table = nullptr;
  std::vector<const WorkerCosts*> costs;  ///< By rank.
  const comm::LinkTable* links = nullptr;
  double vote_seconds = 0;
};

/// Estimates the seconds of one step of the plan; infinite if the plan cannot run.
double EstimateStepSeconds(const EstimateInputs& inputs, const program::Plan& plan);

}  // namespace heddle::planner
