#include "elastic/control/admission.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fnmatch.h>

namespace heddle::elastic {
namespace {

constexpr size_t kHashDigits = 64;
constexpr size_t kMaxNamesBytes = 64;
constexpr double kRememberedSeconds = 86'400;

bool IsHash(const std::string& text) {
  return text.size() == kHashDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool AreNames(const std::string& names) {
  return !names.empty() && names.size() <= kMaxNamesBytes && names.front() != '.' &&
         std::all_of(names.begin(), names.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.' || c == '*' || c == '?';
         });
}

}  // namespace

bool IsNameOf(std::string_view name, const std::string& names) {
  return AreNames(names) && ::fnmatch(names.c_str(), std::string(name).c_str(), FNM_PERIOD) == 0;
}

Status AddGrant(
    Admission& admission, const std::string& hash, JoinGrant grant, double seconds, double now) {
  if (!IsHash(hash)) {
    return InvalidArgumentError("a token's hash has {} digits of base 16", kHashDigits);
  }
  if (!AreNames(grant.names)) {
    return InvalidArgumentError(
        "a token is for names of letters, digits, '-', '_', '.', '*' and '?', at most {}",
        kMaxNamesBytes);
  }
  if (!std::isfinite(seconds) || seconds <= 0 || seconds > kMaxGrantSeconds) {
    return InvalidArgumentError("a token lives for at most {} days", kMaxGrantSeconds / 86'400);
  }
  if (grant.uses_left < 1 || grant.uses_left > kMaxUses) {
    return InvalidArgumentError("a token admits 1 to {} workers, got {}", kMaxUses,
                                grant.uses_left);
  }
  if (admission.grants.contains(hash)) {
    return AlreadyExistsError("this token is known already");
  }
  // Grants that expired in the last day are kept as long as there is room, so that an expired token
  // is told from an unknown one.
  const double remembered = admission.grants.size() < kMaxGrants ? now - kRememberedSeconds : now;
  std::erase_if(admission.grants,
                [&](const auto& entry) { return entry.second.ends <= remembered; });
  if (admission.grants.size() >= kMaxGrants) {
    return ResourceExhaustedError("{} tokens are valid: wait until some have ended", kMaxGrants);
  }
  grant.ends = now + seconds;
  admission.grants.emplace(hash, std::move(grant));
  return Status::Ok();
}

Status CheckGrant(const Admission& admission, const std::string& hash, double now) {
  const auto found = admission.grants.find(hash);
  if (found == admission.grants.end()) {
    return UnauthenticatedError(
        "this coordinator does not know the join token, or it ended long ago");
  }
  if (found->second.ends <= now) {
    return UnauthenticatedError("the join token has ended: `heddle certs token` makes another");
  }
  if (found->second.uses_left <= 0) {
    return UnauthenticatedError(
        "the join token has been used as often as it may be: `heddle certs token` makes another");
  }
  return Status::Ok();
}

Status UseGrant(Admission& admission,
                const std::string& hash,
                const std::string& name,
                double now) {
  HEDDLE_RETURN_IF_ERROR(CheckGrant(admission, hash, now));
  JoinGrant& grant = admission.grants.at(hash);
  if (!IsNameOf(name, grant.names)) {
    return PermissionDeniedError("the join token is for workers named {}, not '{}'", grant.names,
                                 name);
  }
  --grant.uses_left;
  return Status::Ok();
}

Status Revoke(Admission& admission, const std::string& worker, double now) {
  if (!admission.revoked.contains(worker) && admission.revoked.size() >= kMaxRevoked) {
    return ResourceExhaustedError("{} workers are revoked: make another authority", kMaxRevoked);
  }
  admission.revoked[worker] = now;
  return Status::Ok();
}

Status CheckNotRevoked(const Admission& admission, const std::string& worker, double made) {
  const auto found = admission.revoked.find(worker);
  if (found == admission.revoked.end() || made > found->second) {
    return Status::Ok();
  }
  return PermissionDeniedError("the certificate of worker/{} was revoked", worker);
}

}  // namespace heddle::elastic
