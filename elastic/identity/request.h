/// \file
/// Asking for a certificate: a key of one's own, and a request that proves it (PKCS#10). The key
/// stays with whoever asks.
#pragma once

#include <string>

#include "base/status.h"
#include "elastic/identity/openssl.h"

namespace heddle::elastic {

inline constexpr size_t kMostRequestBytes = 16 << 10;

/// In PEM. The key is a secret.
struct KeyAndRequest {
  std::string key;
  std::string request;
};

/// A new key, and a request for it.
Result<KeyAndRequest> MakeRequest();

/// The key of a request in PEM that its own key has signed. Errors: kInvalidArgument (no request,
/// too long, another signature, not a key of the curve P-256).
Result<KeyPtr> ReadRequest(const std::string& pem);

}  // namespace heddle::elastic
