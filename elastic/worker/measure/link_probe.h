/// \file
/// Measures a worker's own end of its links: the latency and the bandwidth between two endpoints of
/// this process, one of which is like the worker's, with its emulated rate. The link of a pair of
/// workers is estimated as the slower of their ends.
#pragma once

#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/planning/measurement.h"
#include "elastic/worker/measure/kept_files.h"

namespace heddle::elastic {

/// Returns the link that is kept for an endpoint with these options, of any worker, or measures it
/// in about a third of a second. `options`: those of the worker's endpoint, with the emulated rate.
/// The measurement's traffic does not count in the worker's metrics. Errors: those of
/// comm::Endpoint.
Result<MeasuredLink> OwnLink(KeptFiles& files, const comm::EndpointOptions& options);

/// The medians of latency and bandwidth over the rounds, with their spreads. Precondition: at least
/// one round. Pure.
MeasuredLink MedianOf(const std::vector<comm::Link>& rounds);

}  // namespace heddle::elastic
