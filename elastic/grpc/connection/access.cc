#include "elastic/grpc/connection/access.h"

#include <algorithm>

namespace heddle::elastic {

const std::vector<CallRule>& CallRules() {
  static const std::vector<CallRule> kRules = {
      {"/heddle.elastic.wire.Control/Session", {Role::kWorker}},
      {"/heddle.elastic.wire.Control/Submit", {Role::kOperator}},
      {"/heddle.elastic.wire.Control/Status", {Role::kOperator, Role::kViewer}},
      {"/heddle.elastic.wire.Control/Drain", {Role::kOperator}},
      {"/heddle.elastic.wire.Control/Emulate", {Role::kOperator}},
      {"/heddle.elastic.wire.Control/Events", {Role::kOperator, Role::kViewer}},
      {"/heddle.elastic.wire.Control/AddToken", {Role::kOperator}},
      {"/heddle.elastic.wire.Control/Revoke", {Role::kOperator}},
      {"/heddle.elastic.wire.Control/Join", {}, /*by_token=*/true},
      {"/heddle.elastic.wire.Control/Renew", {Role::kWorker}},
  };
  return kRules;
}

bool IsByToken(std::string_view call) {
  const auto& rules = CallRules();
  return std::any_of(rules.begin(), rules.end(),
                     [&](const CallRule& rule) { return rule.call == call && rule.by_token; });
}

Status CheckCall(std::string_view call, const Identity& identity) {
  const auto& rules = CallRules();
  const auto rule = std::find_if(rules.begin(), rules.end(),
                                 [&](const CallRule& candidate) { return candidate.call == call; });
  if (rule == rules.end()) {
    return PermissionDeniedError("nobody may call {}", call);
  }
  if (std::find(rule->roles.begin(), rule->roles.end(), identity.role) != rule->roles.end()) {
    return Status::Ok();
  }
  std::string allowed;
  for (const Role role : rule->roles) {
    allowed += (allowed.empty() ? "" : " or ") + std::string(RoleName(role));
  }
  return PermissionDeniedError("{} may not call {}: it takes the role {}", IdentityText(identity),
                               call.substr(call.rfind('/') + 1), allowed);
}

Status BindName(const std::optional<std::string>& worker, wire::FromWorker& message) {
  if (!worker || !message.has_hello()) {
    return Status::Ok();
  }
  wire::Hello& hello = *message.mutable_hello();
  const std::string& name = hello.name();
  if (!name.empty() && !ParseIdentity("worker/" + name).ok()) {
    // Not repeated: it may be long, or look like lines of a log.
    return PermissionDeniedError("the certificate is for worker/{}; the Hello names no worker",
                                 *worker);
  }
  if (worker->empty() || (!name.empty() && name != *worker)) {
    return PermissionDeniedError("the certificate is for worker/{}, and may not speak for '{}'",
                                 *worker, name);
  }
  hello.set_name(*worker);
  return Status::Ok();
}

}  // namespace heddle::elastic
