/// \file
/// A TCP connection within a bound.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle {

/// Connects to HOST:PORT; the host is an address, in brackets where it is one of IPv6, or a name,
/// whose look-up is bounded by the system's resolver alone. The socket does not block. Errors:
/// kInvalidArgument (not HOST:PORT), kUnavailable (no such host, or nobody listens there),
/// kDeadlineExceeded.
Result<UniqueFd> ConnectTo(const std::string& address, Deadline deadline);

}  // namespace heddle
