/// \file
/// Measures a worker's own end of its links: latency and bandwidth between two endpoints of this
/// process, of which one is like the worker's (emulated rate included). The link of a pair is then
/// the slower of both ends.
#pragma once

#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/planning/measurement.h"
#include "elastic/worker/measure/kept_files.h"

namespace heddle::elastic {

/// The link that is kept for an endpoint of these options, whosever it is, or what is measured now,
/// in about a third of a second. `options`: those of the worker's endpoint, with the emulated rate.
/// The two endpoints have metrics that nobody sees: what a measurement sends is not the job's
/// traffic. Errors: those of comm::Endpoint.
Result<MeasuredLink> OwnLink(KeptFiles& files, const comm::EndpointOptions& options);

/// Medians of at least one round, with their spreads. Pure.
MeasuredLink MedianOf(const std::vector<comm::Link>& rounds);

}  // namespace heddle::elastic
