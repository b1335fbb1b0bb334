/// \file
/// `heddle plan`: makes the plan that a run would get, from the profiles that this machine keeps or
/// measures, one worker at a time, and from measured links; or from a profile file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/search/search.h"

namespace heddle::elastic {

/// Which plan to make.
enum class PlanChoice : uint8_t {
  kBest,  ///< The plan that a run would take.
  /// The best grid of equal pipelines and stages (planner::UniformGrid), for comparison.
  kUniform,
};

/// Facts about the measurements that a plan was made from, for people.
struct PlanInputs {
  /// When the oldest profile was measured, in seconds since 1970.
  double profiles_measured_at = 0;
  /// When the oldest link of a worker was measured, in seconds since 1970.
  double links_measured_at = 0;
  /// The largest spread of a worker's latency, as a fraction of its median.
  double latency_spread = 0;
  /// The largest spread of a worker's bandwidth, as a fraction of its median.
  double rate_spread = 0;
  int pairs = 0;  ///< Number of pairs of places whose link was measured.
};

struct LocalPlan {
  program::Plan plan;
  std::string json;
  std::string text;         ///< The plan in words.
  std::string explanation;  ///< Why it is the plan; for kUniform the same as `text`.
  PlanInputs inputs = {};
};

struct LocalPlanOptions {
  std::string job_path;
  std::vector<std::string> overrides = {};
  PlanChoice choice = PlanChoice::kBest;
  std::string profile_path = {};       ///< Profile file to read instead of measuring.
  std::string save_profile_path = {};  ///< Where to write the measurements; not with profile_path.
};

/// Makes the plan of a job's configured workers. Takes seconds for each worker without a kept
/// profile. Errors: kInvalidArgument (the job file; the profile file; no worker or combination fits
/// the model), and those of reading and writing files.
Result<LocalPlan> PlanLocally(const LocalPlanOptions& options);

}  // namespace heddle::elastic
