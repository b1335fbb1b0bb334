/// \file
/// Links between workers of this machine, measured between two endpoints of this process and kept
/// by pair: `heddle plan` and a run plan with the same figures.
#pragma once

#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/protocol/protocol.pb.h"
#include "elastic/worker/measure/kept_files.h"

namespace heddle::elastic {

/// Returns the links between workers with these emulated link rates (bytes a second; 0: not
/// emulated), in the order of `rates`, for each transport that joins two of them. Takes kept links,
/// or measures each pair of different rates once, in about 0.1 s. Without transports there are no
/// links. `config`: the job's endpoint configuration, for every worker.
/// Errors: those of comm::Endpoint::Create.
Result<wire::Links> LocalLinks(KeptFiles& files,
                               const std::vector<double>& rates,
                               const std::vector<std::string>& transports,
                               const comm::EndpointConfig& config);

/// A worker's answer to a request with machine_rates: the link as LocalLinks has it, from the
/// receiver's end. `config` is the worker's.
wire::LinksMeasured AnswerFromKept(KeptFiles& files,
                                   const wire::MeasureLinks& request,
                                   const comm::EndpointConfig& config);

}  // namespace heddle::elastic
