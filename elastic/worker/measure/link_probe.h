/// \file
/// Measures a worker's own end of its links: latency and bandwidth through its endpoint (emulated
/// rate included) to a second endpoint in the same process. The link of a pair is then the slower
/// of both ends.
#pragma once

#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::elastic {

/// `options`: those the endpoint was made with, and the identity it has afterwards. Takes about a
/// quarter of a second. Precondition: the endpoint is in no group, and has been in none of a job's
/// generations.
Result<comm::Link> ProbeOwnLink(comm::Endpoint& endpoint, const comm::EndpointOptions& options);

}  // namespace heddle::elastic
