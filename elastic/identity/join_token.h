/// \file
/// A token that a worker without a certificate joins with: "heddle-join.SECRET.FINGERPRINT". The
/// secret proves that somebody has admitted its holder; the fingerprint is that of the lab's
/// authority, so that the holder knows the coordinator before it says anything to it.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::elastic {

/// Key of the call's metadata that carries the secret.
inline constexpr const char* kJoinSecretKey = "heddle-join-secret";
inline constexpr int64_t kMostTokenBytes = 1 << 10;

/// Both of 256 bits, as 64 digits of base 16.
struct JoinToken {
  std::string secret;
  std::string fingerprint;
  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

/// SHA-256 of a certificate (DER). Errors: kInvalidArgument (no certificate in PEM).
Result<std::string> FingerprintOf(const std::string& certificate_pem);

/// A new one, for the lab of this authority. Errors: as FingerprintOf.
Result<JoinToken> DrawJoinToken(const std::string& authority_pem);

std::string JoinTokenText(const JoinToken& token);
/// The reverse; white space around it is left out. Errors: kInvalidArgument, which does not repeat
/// the text.
Result<JoinToken> ParseJoinToken(const std::string& text);

/// What a coordinator keeps of a token: 64 digits, from which nobody finds the secret.
std::string HashOfSecret(const std::string& secret);

}  // namespace heddle::elastic
