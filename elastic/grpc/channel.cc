#include "elastic/grpc/channel.h"

#include <grpc/support/log.h>

#include "base/log.h"

namespace heddle::elastic {

void QuietGrpc() {
  // Setting it twice sets the same.
  gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("grpc: {}", line->message); });
}

}  // namespace heddle::elastic
