/// \file
/// TLS 1.3 over a TCP socket whose ends have just proved the job's secret to each other
/// (handshake.h). There are no certificates: both ends derive a key for this one socket
/// (DeriveConnectionKey), which the TLS handshake uses as an external pre-shared key (RFC 8446,
/// 4.2.11) together with an ephemeral Diffie-Hellman exchange. So recorded traffic cannot be
/// decrypted even by an attacker who learns the job's secret later. A peer that offers or accepts
/// anything else (no TLS, certificates, an older version, another key) is refused. OpenSSL encrypts
/// and decrypts records in the caller's thread; one system call moves several records.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Records after which the sender changes its key. AES-GCM keeps its security margin for 2^24.5
/// records under one key (RFC 8446, 5.5). 16 Mi records are at most 256 GiB.
inline constexpr uint64_t kTlsRecordsPerKey = uint64_t{1} << 24;

/// Makes the setup of a TLS connection; the dialler is the TLS client. `key` is the same at both
/// ends and used for nothing else. A connection takes about 200 KiB. Errors of Advance:
/// kUnauthenticated (the peer does not speak TLS, or not with this key), kUnavailable (the peer
/// closed the socket), kInternal (OpenSSL is configured without TLS 1.3).
std::unique_ptr<ConnectionSetup> MakeTlsSetup(UniqueFd socket,
                                              TrafficClass traffic_class,
                                              bool dialled,
                                              const Digest& key,
                                              uint64_t records_per_key = kTlsRecordsPerKey);

}  // namespace heddle::comm
