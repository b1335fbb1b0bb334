/// \file
/// The table of which role may make which call of the coordinator. control_port.h consults it for
/// every call on a connection with a certificate.
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
  std::vector<Role> roles;  ///< The roles that may make the call.
  bool by_token = false;    ///< The call needs a join token instead of a certificate.
};

/// All calls that the coordinator answers.
const std::vector<CallRule>& CallRules();

/// True if the call needs a join token instead of a certificate.
bool IsByToken(std::string_view call);

/// OK if the identity's role may make the call. Errors: kPermissionDenied with one line, also for a
/// call that is not in the table.
Status CheckCall(std::string_view call, const Identity& identity);

/// Checks that a Hello has the name of its connection's certificate, and fills in a missing name.
/// Other messages pass. `worker`: the certificate's worker, empty if it is not a worker's; nullopt
/// without certificates, where nothing is checked. Errors: kPermissionDenied (the Hello has another
/// name, or the certificate is not a worker's).
Status BindName(const std::optional<std::string>& worker, wire::FromWorker& message);

}  // namespace heddle::elastic
