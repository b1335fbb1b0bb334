/// \file
/// The transports that there are.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

struct Transports {
  std::vector<std::unique_ptr<Transport>> made;  ///< Best first.
  std::map<std::string, std::string> absent;     ///< Why the others are not among them, by name.
};
/// The transports that `options` allow. Missing RDMA that one could expect is logged once. Errors:
/// those of shared memory and TCP.
Result<Transports> MakeTransports(const EndpointOptions& options);

}  // namespace heddle::comm
