/// \file
/// Verifies that a peer's certificate is of the lab's authority, and reads its identity.
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
  kNoTls,             ///< The peer does not use TLS.
  kNoCertificate,     ///< The peer has no certificate, or one that cannot be read.
  kForeignAuthority,  ///< Another authority signed the certificate, or it is for another purpose.
  kExpired,           ///< The certificate is not valid now.
  kNoIdentity,        ///< The certificate has no identity.
  kRole,              ///< The peer's role may not make this call.
  kName,              ///< The peer's Hello has the name of another worker.
  kToken,             ///< The join token is unknown, has ended, is used up or is for other names.
  kRevoked,           ///< The certificate was revoked.
};
inline constexpr std::array kRefusalReasons = {
    RefusalReason::kNoTls,   RefusalReason::kNoCertificate, RefusalReason::kForeignAuthority,
    RefusalReason::kExpired, RefusalReason::kNoIdentity,    RefusalReason::kRole,
    RefusalReason::kName,    RefusalReason::kToken,         RefusalReason::kRevoked};
std::string_view RefusalReasonName(RefusalReason reason);

/// The outcome of a verification.
struct PeerVerdict {
  Status status;                                         ///< OK, or kUnauthenticated with one line.
  RefusalReason reason = RefusalReason::kNoCertificate;  ///< Set unless the status is OK.
  Identity identity;                                     ///< Set if the status is OK.
};

/// Verifies the certificates of one authority. Thread: any.
class PeerVerifier {
 public:
  /// Errors: kInvalidArgument (no certificate in PEM).
  static Result<std::unique_ptr<PeerVerifier>> Make(const std::string& authority_pem);
  ~PeerVerifier();

  /// Verifies the chain, the time and the purpose of a certificate in PEM (empty: none), and reads
  /// its identity from its one URI. The caller has to know, from the handshake, that the peer has
  /// the certificate's key.
  PeerVerdict Verify(const std::string& certificate_pem) const;

 private:
  struct Parts;
  explicit PeerVerifier(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace heddle::elastic
