/// \file
/// The earlier of what is waited for.
#pragma once

#include <optional>

#include "base/clock.h"

namespace heddle::elastic {

/// `next` becomes `candidate` where that comes first; none never comes.
inline void Earlier(std::optional<Time>& next, std::optional<Time> candidate) {
  if (candidate && (!next || *candidate < *next)) {
    next = candidate;
  }
}

}  // namespace heddle::elastic
