/// \file
/// The certificate of a lab's authority, from a coordinator that nobody has a certificate of yet.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::elastic {

/// Asks what listens at HOST:PORT for its certificates by a TLS handshake, and returns the one (in
/// PEM) whose FingerprintOf is `fingerprint`. Nothing else is believed, and nothing is said: the
/// connection ends then. Whether the coordinator has the key of a certificate that this authority
/// has signed is for the connection to find out that takes it for its root. Errors:
/// kUnauthenticated (none has this fingerprint, or what answers does not speak TLS), kUnavailable
/// and kDeadlineExceeded (nobody answers).
Result<std::string> FetchAuthority(const std::string& address,
                                   const std::string& fingerprint,
                                   Deadline deadline);

}  // namespace heddle::elastic
