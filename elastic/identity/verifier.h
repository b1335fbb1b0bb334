/// \file
/// Whether a peer's certificate is one of the lab's, and what it says.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "elastic/identity/identity.h"

namespace heddle::elastic {

/// Why a peer is refused; the label `reason` of heddle_control_refused_total.
enum class RefusalReason : uint8_t {
  kNoTls,             ///< It does not speak TLS.
  kNoCertificate,     ///< It shows none.
  kForeignAuthority,  ///< Another authority signed it, or it is not meant for this.
  kExpired,           ///< Its time is over, or has not begun.
  kNoIdentity,        ///< It does not say who it is.
  kRole,              ///< Its role may not make this call.
  kName,              ///< It speaks for another worker.
  kToken,             ///< Its join token is unknown, has ended or was used up, or is for others.
  kRevoked,           ///< Its certificate was revoked.
};
inline constexpr std::array kRefusalReasons = {
    RefusalReason::kNoTls,   RefusalReason::kNoCertificate, RefusalReason::kForeignAuthority,
    RefusalReason::kExpired, RefusalReason::kNoIdentity,    RefusalReason::kRole,
    RefusalReason::kName,    RefusalReason::kToken,         RefusalReason::kRevoked};
std::string_view RefusalReasonName(RefusalReason reason);

struct PeerVerdict {
  Status status;                                         ///< kUnauthenticated with one line, or OK.
  RefusalReason reason = RefusalReason::kNoCertificate;  ///< When it is not OK.
  Identity identity;                                     ///< When it is.
};

/// Knows the certificates of one authority. Thread: any.
class PeerVerifier {
 public:
  /// Errors: kInvalidArgument (no certificate in PEM).
  static Result<std::unique_ptr<PeerVerifier>> Make(const std::string& authority_pem);
  ~PeerVerifier();

  /// The peer has shown, by the handshake, that it has the key of this certificate (PEM; empty:
  /// none). Chain, time, purpose and the one URI are looked at.
  PeerVerdict Verify(const std::string& certificate_pem) const;

 private:
  struct Parts;
  explicit PeerVerifier(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace heddle::elastic
