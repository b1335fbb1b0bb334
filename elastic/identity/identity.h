/// \file
/// The identity of a party of a control connection. A certificate has it as the one URI among its
/// subject alternative names, "heddle:ROLE" or "heddle:worker/NAME".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::elastic {

enum class Role : uint8_t { kCoordinator, kOperator, kViewer, kWorker };

/// The role's name: "coordinator", "operator", "viewer" or "worker".
std::string_view RoleName(Role role);

struct Identity {
  Role role = Role::kViewer;
  std::string name;  ///< The name of a worker; empty for other roles.
  friend bool operator==(const Identity&, const Identity&) = default;
};

/// The DNS name in a coordinator's certificate. Clients verify this name and not an address, since
/// certificates outlive addresses; no other role's certificate has it.
inline constexpr const char* kCoordinatorDnsName = "coordinator.heddle";

/// The identity as text: "worker/NAME", "operator", "viewer" or "coordinator".
std::string IdentityText(const Identity& identity);
/// Reads IdentityText. Errors: kInvalidArgument (no such role; a worker's name holds letters,
/// digits, '-', '_' and '.' only, at most 64 of them, and does not begin with a '.').
Result<Identity> ParseIdentity(std::string_view text);

/// The identity as the URI in a certificate.
std::string IdentityUri(const Identity& identity);
/// Reads IdentityUri. Errors: kInvalidArgument.
Result<Identity> ParseIdentityUri(std::string_view uri);

}  // namespace heddle::elastic
