/// \file
/// gRPC's credentials of a server whose certificate may become another while it serves. gRPC's own
/// wrapper has one certificate for good, or reads files by itself, and then takes what does not fit
/// together. Included by control_port.cc only.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/identity/own_certificate.h"

namespace grpc {
class ServerCredentials;
}

namespace heddle::elastic {

/// A call, before a byte of its message is read.
struct CallHead {
  std::string path;         ///< "/PACKAGE.SERVICE/METHOD".
  std::string join_secret;  ///< Of its metadata (elastic/identity/join_token.h); empty: none.
  std::string certificate;  ///< PEM, of which the handshake has shown the key; empty: none.
};

/// Decides on calls. Thread: any, several at once; must not block.
class CallJudge {
 public:
  virtual ~CallJudge() = default;
  /// Not OK: the caller gets it as the call's outcome.
  virtual Status Judge(const CallHead& call) = 0;
};

/// TLS that asks for a certificate and lets any pass: `judge` sees it. Each new connection gets
/// what is current of `own`, and the authority's certificate with it. Both outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeServerTls(OwnCertificate& own, CallJudge& judge);

}  // namespace heddle::elastic
