/// \file
/// Every limit of the control plane, and how it follows from one setting, the lease. A longer lease
/// lengthens the other timeouts in proportion, within their bounds.
#pragma once

#include <string>
#include <vector>

#include "elastic/control/policy.h"

namespace heddle::elastic {

/// One limit that is in force.
struct Limit {
  std::string name;
  double value = 0;
  std::string unit;     ///< "s"; empty: a count.
  std::string source;   ///< "elastic.lease", "lease × 20, at least 15s", "fixed".
  std::string meaning;  ///< What the limit bounds, in words.
};

/// Sets the lease and every limit that is derived from it. `lease` is at most an hour.
void SetLease(JobPolicy& policy, Duration lease);

/// All limits of a job, the lease first. Thread-safe.
std::vector<Limit> LimitsOf(const JobPolicy& policy);

}  // namespace heddle::elastic
