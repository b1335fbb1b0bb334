/// \file
/// Shared memory: the transport within a host.
#pragma once

#include <memory>

#include "base/status.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Errors: kResourceExhausted.
Result<std::unique_ptr<Transport>> MakeShmTransport();

}  // namespace heddle::comm
