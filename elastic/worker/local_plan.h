/// \file
/// `heddle plan`: measures every worker of a job on this machine, one at a time, and plans for
/// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/search/search.h"

namespace heddle::elastic {

enum class PlanChoice : uint8_t {
  kBest,     ///< What a run would take.
  kUniform,  ///< The best grid of equal pipelines and stages (planner::UniformGrid), to compare
             ///< with.
};

struct LocalPlan {
  program::Plan plan;
  std::string json;
  std::string text;         ///< For people.
  std::string explanation;  ///< Longer: why. Of kUniform the same as `text`.
};

/// Errors: kInvalidArgument (the job file; no worker or combination fits the model).
Result<LocalPlan> PlanLocally(const std::string& job_path,
                              const std::vector<std::string>& overrides,
                              PlanChoice choice);

}  // namespace heddle::elastic
