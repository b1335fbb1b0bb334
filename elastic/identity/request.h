/// \file
/// Certificate requests (PKCS#10): a party makes a key, keeps it, and proves in the request that it
/// has it.
#pragma once

#include <string>

#include "base/status.h"
#include "elastic/identity/openssl.h"

namespace heddle::elastic {

inline constexpr size_t kMaxRequestBytes = 16 << 10;

/// A private key and the certificate request for it, in PEM. The key is a secret.
struct KeyAndRequest {
  std::string key;
  std::string request;
};

/// Makes a key and the certificate request for it. Errors: kInternal.
Result<KeyAndRequest> MakeRequest();

/// Reads the public key of a certificate request in PEM, and checks that the request is signed by
/// it. Errors: kInvalidArgument (no request, longer than kMaxRequestBytes, a wrong signature, or
/// not a key of the curve P-256).
Result<KeyPtr> ReadRequest(const std::string& pem);

}  // namespace heddle::elastic
