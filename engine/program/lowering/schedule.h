/// \file
/// Stamps a stage's template out for each microbatch of its pipeline, in the order of 1F1B, and
/// completes the Program: reductions, vote and updates.
#pragma once

#include "engine/program/lowering/gradient_sums.h"
#include "engine/program/lowering/stage_template.h"
#include "engine/program/program.h"

namespace heddle::program {

/// What a worker's Program is made of. `graph` has the types of what the worker has.
struct ScheduleInput {
  const graph::Graph& graph;
  const GraphAnalysis& analysis;
  const Plan& plan;
  int rank = 0;
  StageTemplate steps = {};  ///< Nothing for an idle worker.
  GradientSums sums;
};

Program StampSchedule(ScheduleInput input);

}  // namespace heddle::program
