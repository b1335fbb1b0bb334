#include "elastic/identity/request.h"

#include <array>

#include <openssl/pem.h>

namespace heddle::elastic {
namespace {

using RequestPtr = std::unique_ptr<X509_REQ, OpenSslFree<&X509_REQ_free>>;

bool IsOfOurCurve(EVP_PKEY* key) {
  std::array<char, 64> name{};
  size_t size = 0;
  return EVP_PKEY_get_group_name(key, name.data(), name.size(), &size) == 1 &&
         std::string(name.data(), size) == "prime256v1";  // P-256, as OpenSSL calls it.
}

}  // namespace

Result<KeyAndRequest> MakeRequest() {
  HEDDLE_ASSIGN_OR_RETURN(const KeyPtr key, MakeKey());
  const RequestPtr request(X509_REQ_new());
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (request == nullptr || bio == nullptr ||
      X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) {
    return OpenSslError(StatusCode::kInternal, "make a request for a certificate");
  }
  KeyAndRequest made;
  HEDDLE_ASSIGN_OR_RETURN(made.key, KeyPem(key.get()));
  made.request = TextOf(bio.get());
  return made;
}

Result<KeyPtr> ReadRequest(const std::string& pem) {
  if (pem.size() > kMaxRequestBytes) {
    return InvalidArgumentError("a request for a certificate has at most {} bytes, got {}",
                                kMaxRequestBytes, pem.size());
  }
  const BioPtr bio = BioOf(pem);
  const RequestPtr request(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  KeyPtr key(request == nullptr ? nullptr : X509_REQ_get_pubkey(request.get()));
  // Checks the curve first, since the signature of another kind of key may take long to check.
  if (key == nullptr || !IsOfOurCurve(key.get()) ||
      X509_REQ_verify(request.get(), key.get()) != 1) {
    return OpenSslError(
        StatusCode::kInvalidArgument,
        "not a request for a certificate, in PEM, that its own key of P-256 has signed");
  }
  return key;
}

}  // namespace heddle::elastic
