/// \file
/// TCP: the transport between hosts.
#pragma once

#include <memory>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Errors: kInvalidArgument (bind_host), kResourceExhausted.
Result<std::unique_ptr<Transport>> MakeTcpTransport(const EndpointOptions& options);

}  // namespace heddle::comm
