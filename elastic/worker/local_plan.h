/// \file
/// `heddle plan`: takes the profiles that this machine keeps or measures them, one worker at a
/// time, measures the links, and asks the planner what a run asks it; or asks with what a file has.
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
  double measured_at = 0;   ///< When the oldest profile was measured; seconds since 1970.
};

struct LocalPlanOptions {
  std::string job_path;
  std::vector<std::string> overrides = {};
  PlanChoice choice = PlanChoice::kBest;
  std::string profile_path = {};       ///< Of a profile file that is read instead of measuring.
  std::string save_profile_path = {};  ///< Where what was measured is written; not with the other.
};

/// Errors: kInvalidArgument (the job file; the profile file; no worker or combination fits the
/// model), and those of reading and writing files.
Result<LocalPlan> PlanLocally(const LocalPlanOptions& options);

}  // namespace heddle::elastic
