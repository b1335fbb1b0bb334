/// \file
/// Which workers may get a certificate with a join token, and which workers' certificates are
/// revoked. This state of the coordinator outlives its jobs. Pure: time is an argument, in seconds
/// since the epoch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::elastic {

/// What a join token permits. The coordinator stores the token's hash only.
struct JoinGrant {
  std::string names;  ///< A pattern of worker names: '*' matches any characters, '?' matches one.
  double ends = 0;    ///< When it expires, in seconds since the epoch.
  int64_t uses_left = 0;  ///< How many more workers it admits.
  friend bool operator==(const JoinGrant&, const JoinGrant&) = default;
};

/// The join tokens that are known, and the workers whose certificates are revoked.
struct Admission {
  std::map<std::string, JoinGrant> grants;  ///< By the hash of the token.
  /// By worker: its certificates made up to this time, in seconds since the epoch, are revoked.
  std::map<std::string, double> revoked;
  friend bool operator==(const Admission&, const Admission&) = default;
};

inline constexpr size_t kMaxGrants = 10'000;
inline constexpr size_t kMaxRevoked = 10'000;
inline constexpr int64_t kMaxUses = 100'000;
inline constexpr double kMaxGrantSeconds = 30.0 * 86'400;

/// True if a worker's name matches the pattern `names`.
bool IsNameOf(std::string_view name, const std::string& names);

/// Adds a grant that expires after `seconds`. Grants that expired a day ago are removed, or all
/// expired ones if kMaxGrants are stored. Errors: kInvalidArgument (hash, names, time or uses are
/// malformed or out of range), kAlreadyExists (the token is known), kResourceExhausted (kMaxGrants
/// are valid).
Status AddGrant(
    Admission& admission, const std::string& hash, JoinGrant grant, double seconds, double now);

/// Ok if the token of this hash still admits workers. Errors: kUnauthenticated (it is unknown, has
/// expired, or has no uses left).
Status CheckGrant(const Admission& admission, const std::string& hash, double now);

/// Takes one use of the token for the worker `name`. Errors: those of CheckGrant; kPermissionDenied
/// (the name does not match). After an error nothing has changed.
Status UseGrant(Admission& admission, const std::string& hash, const std::string& name, double now);

/// Revokes the worker's certificates that were made up to `now`. Errors: kResourceExhausted
/// (kMaxRevoked workers are revoked).
Status Revoke(Admission& admission, const std::string& worker, double now);

/// Ok unless the worker's certificate that was made at `made` is revoked. Errors:
/// kPermissionDenied.
Status CheckNotRevoked(const Admission& admission, const std::string& worker, double made);

}  // namespace heddle::elastic
