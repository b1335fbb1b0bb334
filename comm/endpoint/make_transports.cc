#include "comm/endpoint/make_transports.h"

#include <atomic>
#include <utility>

#include "base/log.h"
#include "comm/transport/shm/shm_transport.h"
#include "comm/transport/tcp/tcp_transport.h"
#include "comm/transport/verbs/verbs_transport.h"

namespace heddle::comm {

Result<Transports> MakeTransports(const EndpointOptions& options) {
  Transports transports;
  if (options.allow_shm) {
    HEDDLE_ASSIGN_OR_RETURN(auto shm, MakeShmTransport());
    transports.made.push_back(std::move(shm));
  } else {
    transports.absent["shm"] = "switched off";
  }
  if (!options.allow_verbs) {
    transports.absent["verbs"] = "switched off";
  } else if (auto verbs = MakeVerbsTransport(options); verbs.ok()) {
    transports.made.push_back(*std::move(verbs));
  } else {
    transports.absent["verbs"] = verbs.status().message();
    static std::atomic<bool> told = false;
    const bool wanted =
        !options.rdma_devices.empty() || verbs.status().code() == StatusCode::kUnavailable;
    if (wanted && !told.exchange(true)) {
      LogInfo("RDMA is not used: {}", verbs.status().message());
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(auto tcp, MakeTcpTransport(options));
  transports.made.push_back(std::move(tcp));
  return transports;
}

}  // namespace heddle::comm
