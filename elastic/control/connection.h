/// \file
/// How the coordinator names the stream of a worker.
#pragma once

#include <cstdint>

namespace heddle::elastic {

/// A worker's stream, numbered by the shell; never reused.
using ConnectionId = int64_t;

}  // namespace heddle::elastic
