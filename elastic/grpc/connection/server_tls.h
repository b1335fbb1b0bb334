/// \file
/// gRPC server credentials whose certificate can be replaced while the server runs. gRPC's own C++
/// wrapper has one fixed certificate, or reads the files itself and then accepts a key and a
/// certificate that do not match. Included by control_port.cc only.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/identity/own_certificate.h"

namespace grpc {
class ServerCredentials;
}

namespace heddle::elastic {

/// What is known of a call before a byte of its message is read.
struct CallHead {
  std::string path;         ///< "/PACKAGE.SERVICE/METHOD".
  std::string join_secret;  ///< From the metadata (elastic/identity/join_token.h); empty: none.
  std::string certificate;  ///< The client's, in PEM; its key is proved. Empty: none.
};

/// Authorises calls. Thread: any, several at once; must not block.
class CallJudge {
 public:
  virtual ~CallJudge() = default;
  /// OK if the call may go on; an error is returned to the client as the call's outcome.
  virtual Status Judge(const CallHead& call) = 0;
};

/// Makes TLS credentials that ask the client for a certificate and accept any; `judge` checks it
/// for each call. A new connection is served own.current(), with the authority's certificate in the
/// chain. `own` and `judge` outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeServerTls(OwnCertificate& own, CallJudge& judge);

}  // namespace heddle::elastic
