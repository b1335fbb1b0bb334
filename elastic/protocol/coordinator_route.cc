#include "elastic/protocol/coordinator_route.h"

#include <algorithm>

namespace heddle::elastic {

CoordinatorRoute::CoordinatorRoute(const std::string& coordinators) {
  for (size_t begin = 0; begin < coordinators.size();) {
    const size_t end = std::min(coordinators.find(',', begin), coordinators.size());
    if (end > begin) {
      listed_.push_back(coordinators.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  if (listed_.empty()) {
    listed_.push_back(coordinators);  // Whoever connects says what is wrong with it.
  }
}

void CoordinatorRoute::MoveOn(const std::string& leader) {
  // Who is named names nobody: two that know less and less would be asked for ever.
  const bool follow = !is_named() && leader != current();
  if (!is_named()) {
    next_ = (next_ + 1) % listed_.size();
  }
  named_ = follow ? leader : "";
}

}  // namespace heddle::elastic
