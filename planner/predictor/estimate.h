/// \file
/// Prices a Plan without lowering it: whole stages in 1F1B order under the same event rules as the
/// simulator (schedule.h). Thousands of times cheaper than Simulate, and close to it: it leaves out
/// only the interleaving inside a stage.
#pragma once

#include <vector>

#include "engine/program/plan.h"
#include "planner/predictor/costs.h"
#include "planner/predictor/schedule.h"

namespace heddle::planner {

struct EstimateInputs {
  const SegmentTable* table = nullptr;
  std::vector<const WorkerCosts*> costs;  ///< By rank.
  const comm::LinkTable* links = nullptr;
  double vote_seconds = 0;
};

/// Seconds of one step; infinite for a plan that cannot run.
double EstimateStepSeconds(const EstimateInputs& inputs, const program::Plan& plan);

}  // namespace heddle::planner
