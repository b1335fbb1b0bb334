// What stands for the verbs transport in a build without libibverbs.
#include <atomic>

#include "base/log.h"
#include "comm/transport.h"
#include "comm/verbs_ports.h"

namespace heddle::comm {

std::vector<RdmaPort> FindRdmaPorts() {
  return {};
}

std::unique_ptr<Transport> MakeVerbsTransport(const EndpointOptions& options) {
  static std::atomic<bool> told = false;
  if (!options.rdma_device.empty() && !told.exchange(true)) {
    LogInfo("RDMA is not used: this program was built without libibverbs and librdmacm");
  }
  return nullptr;
}

}  // namespace heddle::comm
