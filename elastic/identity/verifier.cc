#include "elastic/identity/verifier.h"

#include <utility>
#include <vector>

#include "elastic/identity/openssl.h"

namespace heddle::elastic {
namespace {

PeerVerdict Refuse(RefusalReason reason, std::string line) {
  return {.status = Status(StatusCode::kUnauthenticated, std::move(line)),
          .reason = reason,
          .identity = {}};
}

// True if the certificate's purpose fits the role: a coordinator's is a server's, all others are
// clients'.
bool IsMeantFor(X509* certificate, const Identity& identity) {
  const int purpose =
      identity.role == Role::kCoordinator ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT;
  return X509_check_purpose(certificate, purpose, /*ca=*/0) == 1;
}

// The URIs of the subject alternative names.
std::vector<std::string> UrisOf(X509* certificate) {
  std::vector<std::string> uris;
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_URI) {
      const ASN1_IA5STRING* const text = name->d.uniformResourceIdentifier;
      uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                        static_cast<size_t>(ASN1_STRING_length(text)));
    }
  }
  GENERAL_NAMES_free(names);
  return uris;
}

}  // namespace

std::string_view RefusalReasonName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kNoTls:
      return "no_tls";
    case RefusalReason::kNoCertificate:
      return "no_certificate";
    case RefusalReason::kForeignAuthority:
      return "foreign_authority";
    case RefusalReason::kExpired:
      return "expired";
    case RefusalReason::kNoIdentity:
      return "no_identity";
    case RefusalReason::kRole:
      return "role";
    case RefusalReason::kName:
      return "name";
    case RefusalReason::kToken:
      return "token";
    case RefusalReason::kRevoked:
      return "revoked";
  }
  return "";
}

struct PeerVerifier::Parts {
  StorePtr store;
};

PeerVerifier::PeerVerifier(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PeerVerifier::~PeerVerifier() = default;

Result<std::unique_ptr<PeerVerifier>> PeerVerifier::Make(const std::string& authority_pem) {
  HEDDLE_ASSIGN_OR_RETURN(const CertificatePtr authority, ReadCertificate(authority_pem));
  auto parts = std::make_unique<Parts>();
  parts->store = StorePtr(X509_STORE_new());
  if (parts->store == nullptr || X509_STORE_add_cert(parts->store.get(), authority.get()) != 1) {
    return OpenSslError(StatusCode::kInternal, "keep the authority's certificate");
  }
  return std::unique_ptr<PeerVerifier>(new PeerVerifier(std::move(parts)));
}

PeerVerdict PeerVerifier::Verify(const std::string& certificate_pem) const {
  if (certificate_pem.empty()) {
    return Refuse(RefusalReason::kNoCertificate,
                  "this coordinator takes calls with a certificate only: give --certs DIR");
  }
  const Result<CertificatePtr> certificate = ReadCertificate(certificate_pem);
  if (!certificate.ok()) {
    return Refuse(RefusalReason::kNoCertificate, certificate.status().message());
  }
  const StoreContextPtr context(X509_STORE_CTX_new());
  if (context == nullptr ||
      X509_STORE_CTX_init(context.get(), parts_->store.get(), certificate->get(), nullptr) != 1) {
    return Refuse(RefusalReason::kForeignAuthority, "the certificate cannot be verified");
  }
  if (X509_verify_cert(context.get()) != 1) {
    const int error = X509_STORE_CTX_get_error(context.get());
    const bool time =
        error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
    return time
               ? Refuse(RefusalReason::kExpired, fmt::format("the certificate is not valid now: {}",
                                                             X509_verify_cert_error_string(error)))
               : Refuse(RefusalReason::kForeignAuthority,
                        fmt::format("the certificate is not one of this lab's authority: {}",
                                    X509_verify_cert_error_string(error)));
  }
  const std::vector<std::string> uris = UrisOf(certificate->get());
  const Result<Identity> identity =
      uris.size() == 1 ? ParseIdentityUri(uris.front())
                       : InvalidArgumentError("it has {} URIs, expected one", uris.size());
  if (!identity.ok()) {
    return Refuse(RefusalReason::kNoIdentity,
                  "the certificate does not say who it is for: " + identity.status().message());
  }
  if (!IsMeantFor(certificate->get(), *identity)) {
    return Refuse(
        RefusalReason::kForeignAuthority,
        fmt::format("the certificate is not meant for the role {}", RoleName(identity->role)));
  }
  return {.status = Status::Ok(), .reason = RefusalReason::kNoCertificate, .identity = *identity};
}

}  // namespace heddle::elastic
