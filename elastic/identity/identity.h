/// \file
/// Who speaks on a control connection, as a certificate says it: in one URI among the subject
/// alternative names, "heddle:ROLE" or "heddle:worker/NAME".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::elastic {

enum class Role : uint8_t { kCoordinator, kOperator, kViewer, kWorker };

/// "coordinator", "operator", "viewer", "worker".
std::string_view RoleName(Role role);

struct Identity {
  Role role = Role::kViewer;
  std::string name;  ///< A worker's; empty for the other roles.
  friend bool operator==(const Identity&, const Identity&) = default;
};

/// The DNS name that a coordinator's certificate has beside its URI. Whoever connects asks for this
/// name and not for an address: certificates outlive addresses, and a worker's has no such name.
inline constexpr const char* kCoordinatorDnsName = "coordinator.heddle";

/// "worker/NAME", "operator", "viewer", "coordinator".
std::string IdentityText(const Identity& identity);
/// Reads IdentityText. Errors: kInvalidArgument (no such role; a worker's name holds letters,
/// digits, '-', '_' and '.' only, at most 64 of them, and does not begin with a '.').
Result<Identity> ParseIdentity(std::string_view text);

/// As a certificate has it.
std::string IdentityUri(const Identity& identity);
/// Errors: kInvalidArgument.
Result<Identity> ParseIdentityUri(std::string_view uri);

}  // namespace heddle::elastic
