/// \file
/// Memory that a plan leaves unused buys slack: forwards computed ahead (Stage::ahead), so that a
/// pipeline does not stall while messages travel, nor when a stage is late.
#pragma once

#include "planner/search/problem.h"

namespace heddle::planner {

/// Every stage but a pipeline's last computes `most` microbatches ahead, or as many as its worker's
/// memory allows, and never more than the stage before: the two would take turns. What stages had
/// before is forgotten.
void GiveSlack(const Problem& problem, int most, program::Plan& plan);

}  // namespace heddle::planner
