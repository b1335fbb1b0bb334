/// \file
/// How many a heartbeat names of those whom a worker waits for.
#pragma once

#include <cstddef>

namespace heddle::elastic {

/// A worker tells so many at most, and of more the coordinator takes no notice. A wait for a larger
/// group goes through a few of its members, or one after another.
inline constexpr size_t kMostAwaited = 16;

}  // namespace heddle::elastic
