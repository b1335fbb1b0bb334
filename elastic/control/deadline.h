/// \file
/// The earlier of two optional deadlines.
#pragma once

#include <optional>

#include "base/clock.h"

namespace heddle::elastic {

/// Sets `next` to `candidate` if that is earlier. nullopt means never.
inline void Earlier(std::optional<Time>& next, std::optional<Time> candidate) {
  if (candidate && (!next || *candidate < *next)) {
    next = candidate;
  }
}

}  // namespace heddle::elastic
