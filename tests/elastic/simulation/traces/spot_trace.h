/// \file
/// A recorded trace of the times at which a cloud gave and took spot instances.
#pragma once

#include <vector>

namespace heddle::elastic {

/// The instances that came and were lost within one minute.
struct SpotInstant {
  int minute = 0;
  int joins = 0;               ///< How many came; instances are numbered from 1 as they come.
  std::vector<int> lost = {};  ///< The numbers of the instances that were lost.
};

/// The trace of AWS p3 spot instances in us-east-1 over 11.3 hours: 177 came and 167 were lost;
/// between 10 and 32 were there at a time. Ascending by minute; the first minute is 0.
std::vector<SpotInstant> SpotTrace();

}  // namespace heddle::elastic
