/// \file
/// What transports are called, in job files, link tables and metrics.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::comm {

/// Every transport that joins pairs of workers, best first, whether this build and machine have it
/// or not: "shm", "verbs", "tcp". (MPI joins static groups only: comm/mpi/world.h.)
std::span<const std::string_view> TransportNames();

/// Errors: kInvalidArgument names what is no transport, or stands there twice.
Status CheckTransportNames(std::span<const std::string> names);

}  // namespace heddle::comm
