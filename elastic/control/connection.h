/// \file
/// The coordinator's identifier of a worker's connection.
#pragma once

#include <cstdint>

namespace heddle::elastic {

/// A worker's connection, numbered by the shell; numbers are never reused, and 0 is none.
using ConnectionId = int64_t;

}  // namespace heddle::elastic
