/// \file
/// Connects over TCP within a deadline.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle {

/// Connects to HOST:PORT and returns the non-blocking socket. The host is an address, in brackets
/// for IPv6, or a name, whose look-up is bounded only by the system's resolver. Errors:
/// kInvalidArgument (not HOST:PORT), kUnavailable (no such host, or no process listens there),
/// kDeadlineExceeded.
Result<UniqueFd> ConnectTo(const std::string& address, Deadline deadline);

}  // namespace heddle
