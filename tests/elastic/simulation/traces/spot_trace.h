/// \file
/// When a cloud took instances and gave them, as it was recorded.
#pragma once

#include <vector>

namespace heddle::elastic {

struct SpotInstant {
  int minute = 0;
  int joins = 0;               ///< So many more; instances are numbered from 1 as they come.
  std::vector<int> lost = {};  ///< Their numbers.
};

/// AWS p3 spot instances in us-east-1 for 11.3 hours: 177 came and 167 were lost, at most 32 were
/// there and at least 10. Ascending; the first instant is 0.
std::vector<SpotInstant> SpotTrace();

}  // namespace heddle::elastic
