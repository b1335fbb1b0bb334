/// \file
/// Who may get a certificate by a token, and whose certificates no longer count: facts of the
/// coordinator that outlive its jobs. Pure: time is an argument, in seconds since the epoch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::elastic {

/// Of a token that admits workers. The token itself is known to whoever has it alone.
struct JoinGrant {
  std::string names;  ///< A worker's name, in which '*' stands for any characters, '?' for one.
  double ends = 0;
  int64_t uses_left = 0;
  friend bool operator==(const JoinGrant&, const JoinGrant&) = default;
};

struct Admission {
  std::map<std::string, JoinGrant> grants;  ///< By the hash of their token.
  /// Workers, and until when: certificates that were made by then count no more.
  std::map<std::string, double> revoked;
  friend bool operator==(const Admission&, const Admission&) = default;
};

inline constexpr size_t kMostGrants = 10'000;
inline constexpr size_t kMostRevoked = 10'000;
inline constexpr int64_t kMostUses = 100'000;
inline constexpr double kMostGrantSeconds = 30.0 * 86'400;

/// Whether a worker's name is one of `names`.
bool IsNameOf(std::string_view name, const std::string& names);

/// Adds a grant that ends after `seconds`; those that ended a day ago go, and where they are many
/// all that have ended. Errors: kInvalidArgument (a
/// hash, names, a time or a number of uses that cannot be), kAlreadyExists (the token is known),
/// kResourceExhausted (too many).
Status AddGrant(
    Admission& admission, const std::string& hash, JoinGrant grant, double seconds, double now);

/// Whether the token of this hash still admits anybody. Errors: kUnauthenticated with one line.
Status CheckGrant(const Admission& admission, const std::string& hash, double now);

/// Takes one use for the worker `name`. Errors: as CheckGrant; kPermissionDenied (another name);
/// nothing changes then.
Status UseGrant(Admission& admission, const std::string& hash, const std::string& name, double now);

/// Certificates of the worker that were made by now count no more. Errors: kResourceExhausted.
Status Revoke(Admission& admission, const std::string& worker, double now);

/// Whether a certificate of the worker that was made at `made` counts. Errors: kPermissionDenied.
Status CheckNotRevoked(const Admission& admission, const std::string& worker, double made);

}  // namespace heddle::elastic
