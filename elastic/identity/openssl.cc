#include "elastic/identity/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace heddle::elastic {
namespace {

// Refuses keys with a passphrase: OpenSSL would ask on the terminal, and a service would hang.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*context*/) {
  return -1;
}

}  // namespace

BioPtr BioOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

Status OpenSslError(StatusCode code, const std::string& what) {
  const auto error = ERR_peek_last_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return {code, what + ": " + (reason == nullptr ? "failed" : reason)};
}

Result<CertificatePtr> ReadCertificate(const std::string& pem) {
  const BioPtr bio = BioOf(pem);
  CertificatePtr certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  if (certificate == nullptr) {
    return OpenSslError(StatusCode::kInvalidArgument, "not a certificate in PEM");
  }
  return certificate;
}

Result<KeyPtr> ReadKey(const std::string& pem) {
  const BioPtr bio = BioOf(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return OpenSslError(StatusCode::kInvalidArgument,
                        "not a private key in PEM without a passphrase");
  }
  return key;
}

Result<KeyPtr> MakeKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) {
    return OpenSslError(StatusCode::kInternal, "make a key");
  }
  return key;
}

Result<std::string> CertificatePem(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) {
    return OpenSslError(StatusCode::kInternal, "write a certificate");
  }
  return TextOf(bio.get());
}

Result<std::string> KeyPem(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return OpenSslError(StatusCode::kInternal, "write a private key");
  }
  return TextOf(bio.get());
}

}  // namespace heddle::elastic
