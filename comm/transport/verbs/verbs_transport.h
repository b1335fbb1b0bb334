/// \file
/// RDMA: the transport over devices that verbs drive.
#pragma once

#include <memory>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Errors, all of which mean that there is no RDMA: kUnavailable (no port, or none that can be
/// used), kFailedPrecondition (a worker for its own host alone), kUnimplemented (a build without
/// it).
Result<std::unique_ptr<Transport>> MakeVerbsTransport(const EndpointOptions& options);

}  // namespace heddle::comm
