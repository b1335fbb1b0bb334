/// \file
/// Measures a worker's own end of its links: latency and bandwidth through its endpoint (emulated
/// rate included) to a second endpoint in the same process. The link of a pair is then the slower
/// of both ends.
#pragma once

#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/planning/measurement.h"
#include "elastic/worker/measure/kept_files.h"

namespace heddle::elastic {

/// The link that is kept for an endpoint of these options, whosever it is, or what is measured
/// through this one, in about a third of a second. `options`: those the endpoint was made with, and
/// the identity it has afterwards. Precondition: the endpoint is in no group, and has been in none
/// of a job's generations.
Result<MeasuredLink> OwnLink(KeptFiles& files,
                             comm::Endpoint& endpoint,
                             const comm::EndpointOptions& options);

/// Medians of at least one round, with their spreads. Pure.
MeasuredLink MedianOf(const std::vector<comm::Link>& rounds);

}  // namespace heddle::elastic
