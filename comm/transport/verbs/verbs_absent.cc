// What stands for the verbs transport in a build without libibverbs.
#include "comm/transport/transport.h"
#include "comm/transport/verbs/rdma_ports.h"
#include "comm/transport/verbs/verbs_transport.h"

namespace heddle::comm {

bool BuiltWithVerbs() {
  return false;
}

Result<std::unique_ptr<Transport>> MakeVerbsTransport(const EndpointOptions& /*options*/) {
  return UnimplementedError("this program was built without libibverbs and librdmacm");
}

}  // namespace heddle::comm
