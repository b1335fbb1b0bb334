/// \file
/// Who may make which call of the coordinator: the one table. control_port.h asks it for every call
/// of every connection that has a certificate.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "elastic/identity/identity.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

struct CallRule {
  std::string_view call;    ///< "/PACKAGE.SERVICE/METHOD", as gRPC names it.
  std::vector<Role> roles;  ///< Nobody else may.
  bool by_token = false;    ///< By whoever has a join token, instead of a certificate.
};

/// All calls that the coordinator answers.
const std::vector<CallRule>& CallRules();

/// Whether the call is for who has a join token.
bool IsByToken(std::string_view call);

/// Errors: kPermissionDenied with one line; also for a call that the table does not have.
Status CheckCall(std::string_view call, const Identity& identity);

/// A worker speaks for the name of its certificate only: a Hello without a name gets it. `worker`:
/// nothing where there are no certificates. Errors: kPermissionDenied (the Hello has another name,
/// or the certificate none).
Status BindName(const std::optional<std::string>& worker, wire::FromWorker& message);

}  // namespace heddle::elastic
