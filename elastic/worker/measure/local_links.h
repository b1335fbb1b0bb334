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

/// The links that are kept, or are measured now, between workers with these emulated link rates
/// (bytes a second; 0: none), in their order, by each of the transports that joins two of them; one
/// measurement a pair of unlike rates, about 0.1 s each. No transports: no links.
/// `config` is the job's, for every worker. Errors: those of comm::Endpoint::Create.
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
