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

/// What a plan was made from, for people.
struct PlanInputs {
  /// When the oldest was measured, in seconds since 1970.
  double profiles_measured_at = 0;
  double links_measured_at = 0;
  /// The largest spread of a worker's own link, as a part of its median.
  double latency_spread = 0;
  double rate_spread = 0;
  int pairs = 0;  ///< Pairs of places whose link was measured.
};

struct LocalPlan {
  program::Plan plan;
  std::string json;
  std::string text;         ///< For people.
  std::string explanation;  ///< Longer: why. Of kUniform the same as `text`.
  PlanInputs inputs = {};
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
