/// \file
/// Every limit of the control plane, and how it follows from one setting, the lease: who waits
/// longer for a silent worker waits longer for everything else, in proportion.
#pragma once

#include <string>
#include <vector>

#include "elastic/control/policy.h"

namespace heddle::elastic {

/// A limit that is in force.
struct Limit {
  std::string name;
  double value = 0;
  std::string unit;     ///< "s"; empty: a number of times.
  std::string source;   ///< "elastic.lease", "lease × 20, at least 15s", "fixed".
  std::string meaning;  ///< What ends when it is reached.
};

/// Sets the lease and all that follows from it. At most an hour.
void SetLease(JobPolicy& policy, Duration lease);

/// All of a job, the lease first. Thread-safe.
std::vector<Limit> LimitsOf(const JobPolicy& policy);

}  // namespace heddle::elastic
