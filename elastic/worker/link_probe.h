/// \file
/// Measures a worker's own end of its links: latency and bandwidth through its endpoint (emulated rate included) to
/// a second endpoint in the same process. The link of a pair is then the slower of both ends.
#pragma once

#include <string>

#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::elastic {

/// Takes about a quarter of a second. Precondition: the endpoint is in no group.
Result<comm::Link> ProbeOwnLink(comm::Endpoint& endpoint, const std::string& worker);

}  // namespace heddle::elastic
