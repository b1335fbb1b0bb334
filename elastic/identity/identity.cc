#include "elastic/identity/identity.h"

#include <algorithm>
#include <array>

namespace heddle::elastic {
namespace {

constexpr std::array kRoles = {Role::kCoordinator, Role::kOperator, Role::kViewer, Role::kWorker};
constexpr std::string_view kScheme = "heddle:";
constexpr size_t kMaxNameBytes = 64;

// True for the names that the coordinator accepts, but for those that begin with a dot, which would
// make a hidden folder or lead out of one.
bool IsWorkerName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return "coordinator";
    case Role::kOperator:
      return "operator";
    case Role::kViewer:
      return "viewer";
    case Role::kWorker:
      return "worker";
  }
  return "";
}

std::string IdentityText(const Identity& identity) {
  return std::string(RoleName(identity.role)) +
         (identity.role == Role::kWorker ? "/" + identity.name : "");
}

Result<Identity> ParseIdentity(std::string_view text) {
  const size_t slash = text.find('/');
  const auto role = std::find_if(kRoles.begin(), kRoles.end(), [&](Role candidate) {
    return RoleName(candidate) == text.substr(0, slash);
  });
  const bool named = slash != std::string_view::npos;
  if (role == kRoles.end() || named != (*role == Role::kWorker)) {
    return InvalidArgumentError(
        "expected a role: worker/NAME, operator, viewer or coordinator, got '{}'", text);
  }
  const std::string_view name = named ? text.substr(slash + 1) : std::string_view();
  if (named && !IsWorkerName(name)) {
    return InvalidArgumentError(
        "a worker's name holds letters, digits, '-', '_' and '.', at most {} of them, and does not "
        "begin with a '.', got '{}'",
        kMaxNameBytes, name);
  }
  return Identity{.role = *role, .name = std::string(name)};
}

std::string IdentityUri(const Identity& identity) {
  return std::string(kScheme) + IdentityText(identity);
}

Result<Identity> ParseIdentityUri(std::string_view uri) {
  if (!uri.starts_with(kScheme)) {
    return InvalidArgumentError("expected {}ROLE, got '{}'", kScheme, uri);
  }
  return ParseIdentity(uri.substr(kScheme.size()));
}

}  // namespace heddle::elastic
