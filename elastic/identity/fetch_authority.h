/// \file
/// Fetches the certificate of a lab's authority from its coordinator, for a client that has only
/// the certificate's fingerprint.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::elastic {

/// Gets the certificates of the server at HOST:PORT by a TLS handshake, and returns the one, in
/// PEM, whose FingerprintOf is `fingerprint`. Verifies nothing else, sends nothing else and closes
/// the connection: a later connection with this certificate as its root has to verify that the
/// server has the key of a certificate that the authority signed. Errors: kUnauthenticated (no
/// certificate has this fingerprint, or the server does not use TLS), kUnavailable and
/// kDeadlineExceeded (no server answers).
Result<std::string> FetchAuthority(const std::string& address,
                                   const std::string& fingerprint,
                                   Deadline deadline);

}  // namespace heddle::elastic
