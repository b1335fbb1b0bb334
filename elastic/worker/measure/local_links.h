/// \file
/// Links between workers that a job starts on this machine, measured before any of them is there,
/// in the way in which they will measure them.
#pragma once

#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/protocol/protocol.pb.h"
#include "elastic/worker/measure/kept_files.h"

namespace heddle::elastic {

/// The links that are kept, or are measured now, between workers with these emulated link rates
/// (bytes a second; 0: none), in their order, by each of the transports that joins two of them; one
/// measurement a pair of unlike rates, about 0.1 s each. No transports: nothing is measured.
/// `config` is the job's, for every worker. Errors: those of comm::Endpoint::Create.
Result<wire::Links> LocalLinks(KeptFiles& files,
                               const std::vector<double>& rates,
                               const std::vector<std::string>& transports,
                               const comm::EndpointConfig& config);

}  // namespace heddle::elastic
