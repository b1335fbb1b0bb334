// What stands for the verbs transport in a build without libibverbs.
#include "comm/transport/registry.h"
#include "comm/transport/verbs/rdma_ports.h"

namespace heddle::comm {

namespace {

Result<std::unique_ptr<Transport>> Open(const TransportSettings& /*settings*/) {
  return UnimplementedError("this program was built without libibverbs and librdmacm");
}

const RegisteredTransport kRegistered("verbs", &Open, &ListRdmaPorts);

}  // namespace

bool BuiltWithVerbs() {
  return false;
}

}  // namespace heddle::comm
