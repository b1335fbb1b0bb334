/// \file
/// Certificates that the product's authority would not issue, made by hand.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "elastic/identity/authority.h"
#include "elastic/identity/openssl.h"

namespace heddle::elastic {

/// The fields of a certificate to make.
struct Wish {
  std::string names = "URI:heddle:operator";  ///< Subject alternative names; empty: none.
  std::string usage = "clientAuth";
  long from = -60;    ///< The begin of the validity, in seconds from now.
  long until = 3600;  ///< The end of the validity, in seconds from now.
};

inline void AddByHand(X509* certificate, int nid, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
  EXPECT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

inline KeyAndCertificate MakeByHand(const KeyAndCertificate& authority, const Wish& wish) {
  const CertificatePtr issuer = *ReadCertificate(authority.certificate);
  const KeyPtr issuer_key = *ReadKey(authority.key);
  const KeyPtr key(EVP_EC_gen("P-256"));
  const CertificatePtr made(X509_new());
  X509* const raw = made.get();
  X509_set_version(raw, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(raw), 7);
  X509_gmtime_adj(X509_getm_notBefore(raw), wish.from);
  X509_gmtime_adj(X509_getm_notAfter(raw), wish.until);
  X509_set_pubkey(raw, key.get());
  X509_set_issuer_name(raw, X509_get_subject_name(issuer.get()));
  AddByHand(raw, NID_ext_key_usage, wish.usage);
  if (!wish.names.empty()) {
    AddByHand(raw, NID_subject_alt_name, wish.names);
  }
  EXPECT_NE(X509_sign(raw, issuer_key.get(), EVP_sha256()), 0);
  return {.key = *KeyPem(key.get()), .certificate = *CertificatePem(raw)};
}

}  // namespace heddle::elastic
