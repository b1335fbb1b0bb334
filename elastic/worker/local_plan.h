/// \file
/// `heddle plan`: measures every worker of a job on this machine, one at a time, and plans for
/// them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/search.h"

namespace heddle::elastic {

struct LocalPlan {
  program::Plan plan;
  std::string json;
  std::string text;         ///< For people.
  std::string explanation;  ///< Longer: why.
};

/// Errors: kInvalidArgument (the job file; no worker or combination fits the model).
Result<LocalPlan> PlanLocally(const std::string& job_path,
                              const std::vector<std::string>& overrides);

}  // namespace heddle::elastic
