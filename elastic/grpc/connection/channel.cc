#include "elastic/grpc/connection/channel.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include "base/log.h"
#include "elastic/grpc/connection/monotonic_waits.h"

namespace heddle::elastic {

void QuietGrpc() {
  KeepWaitsMonotonic();
  // Setting them twice sets the same.
  gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("grpc: {}", line->message); });
  // By default it prints a line for every field that is not UTF-8: any client could fill the log.
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel /*level*/, const char* /*file*/, int /*line*/,
         const std::string& message) { LogDebug("protobuf: {}", message); });
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& coordinator,
                                           const Credentials& credentials) {
  QuietGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Every attempt is a connection of its own, with no back-off but ours.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (credentials.authority.empty()) {
    return grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments);
  }
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = credentials.authority;
  tls.pem_private_key = credentials.key;
  tls.pem_cert_chain = credentials.certificate;
  // Whatever its address is: of all the authority's certificates only a coordinator's has the name.
  arguments.SetSslTargetNameOverride(kCoordinatorDnsName);
  return grpc::CreateCustomChannel(coordinator, grpc::SslCredentials(tls), arguments);
}

grpc::Status ToGrpc(const Status& status) {
  return status.ok() ? grpc::Status::OK
                     : grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) {
    return Status::Ok();
  }
  const std::string& text = status.error_message();
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    if (says("certificate verify failed")) {
      return UnauthenticatedError(
          "what answers is not this lab's coordinator: another authority signed its certificate, "
          "or it has expired");
    }
    if (says("is not in peer certificate")) {
      return UnauthenticatedError(
          "what answers is not this lab's coordinator: its certificate is another party's");
    }
    if (says("wrong version number")) {
      return UnauthenticatedError(
          "what answers does not speak TLS: a coordinator without --certs, or none");
    }
  }
  return {static_cast<StatusCode>(status.error_code()), text};
}

}  // namespace heddle::elastic
