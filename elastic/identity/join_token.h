/// \file
/// Join tokens, with which a worker without a certificate joins: "heddle-join.SECRET.FINGERPRINT".
/// The secret proves that an operator has admitted the holder. The fingerprint is that of the lab's
/// authority, by which the holder verifies the coordinator before it sends the secret.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::elastic {

/// Key of the call's metadata that carries the secret.
inline constexpr const char* kJoinSecretKey = "heddle-join-secret";
inline constexpr int64_t kMaxTokenBytes = 1 << 10;

/// A token; both parts are 256 bits as 64 hexadecimal digits.
struct JoinToken {
  std::string secret;
  std::string fingerprint;
  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

/// The SHA-256 of a certificate's DER form, as 64 hexadecimal digits. Errors: kInvalidArgument (no
/// certificate in PEM).
Result<std::string> FingerprintOf(const std::string& certificate_pem);

/// Draws a token for the lab of this authority. Errors: those of FingerprintOf.
Result<JoinToken> DrawJoinToken(const std::string& authority_pem);

/// The token as text.
std::string JoinTokenText(const JoinToken& token);
/// Reads JoinTokenText, with white space around it. Errors: kInvalidArgument, whose message does
/// not repeat the text.
Result<JoinToken> ParseJoinToken(const std::string& text);

/// The hash of a token's secret that a coordinator stores: 64 hexadecimal digits, from which the
/// secret cannot be found.
std::string HashOfSecret(const std::string& secret);

}  // namespace heddle::elastic
