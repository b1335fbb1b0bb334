#include "elastic/grpc/channel.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include "base/log.h"

namespace heddle::elastic {

void QuietGrpc() {
  // Setting it twice sets the same.
  gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("grpc: {}", line->message); });
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& coordinator) {
  QuietGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kKeepalive.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kKeepalive.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Every attempt is a connection of its own, with no back-off but ours.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace heddle::elastic
