/// \file
/// OpenSSL's objects in owning pointers, and helpers for PEM. Included by this folder only.
#pragma once

#include <memory>
#include <string>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/status.h"

namespace heddle::elastic {

template <auto Free>
struct OpenSslFree {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, OpenSslFree<&EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, OpenSslFree<&X509_free>>;
using StorePtr = std::unique_ptr<X509_STORE, OpenSslFree<&X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, OpenSslFree<&X509_STORE_CTX_free>>;
using BioPtr = std::unique_ptr<BIO, OpenSslFree<&BIO_free_all>>;

/// An error with the message "WHAT: REASON", where the reason is that of this thread's last OpenSSL
/// failure. Clears the thread's error queue.
Status OpenSslError(StatusCode code, const std::string& what);

/// A BIO that reads from `text`, which outlives it.
BioPtr BioOf(const std::string& text);
/// The text written to a BIO in memory.
std::string TextOf(BIO* bio);

/// Reads a certificate. Errors: kInvalidArgument (no certificate in PEM).
Result<CertificatePtr> ReadCertificate(const std::string& pem);
/// Reads a private key. Errors: kInvalidArgument (no private key in PEM, or one with a passphrase,
/// which is not asked for).
Result<KeyPtr> ReadKey(const std::string& pem);
/// Makes a key of the curve P-256.
Result<KeyPtr> MakeKey();
/// Formats as PEM. The key is not encrypted. Errors: kInternal.
Result<std::string> CertificatePem(X509* certificate);
Result<std::string> KeyPem(EVP_PKEY* key);

}  // namespace heddle::elastic
