/// \file
/// How many of the workers that a worker waits for its heartbeat names.
#pragma once

#include <cstddef>

namespace heddle::elastic {

/// A worker names at most this many, and the coordinator ignores more. That is enough, because a
/// worker waits for a larger group through a few of its members, or for one after another.
inline constexpr size_t kMaxAwaited = 16;

}  // namespace heddle::elastic
