/// \file
/// TLS 1.3 over a TCP socket whose ends have just proved the job's secret to each other
/// (handshake.h). There are no certificates: both ends have a key that belongs to this one socket
/// (DeriveConnectionKey), which the TLS handshake takes as an external pre-shared key (RFC
/// 8446, 4.2.11) together with an ephemeral Diffie-Hellman exchange; so a recording cannot be read
/// even by someone who learns the job's secret later. A peer that offers or takes anything else (no
/// TLS, certificates, an older version, another key) is refused. Records are made and opened by
/// OpenSSL in the caller's thread; several go through the socket with one system call.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// AES-GCM keeps its margin for 2^24.5 records under one key (RFC 8446, 5.5); before that the
/// sender changes its key. 16 Mi records are at most 256 GiB.
inline constexpr uint64_t kTlsRecordsPerKey = uint64_t{1} << 24;

/// The dialler is the TLS client. `key` is the same at both ends and used for nothing else. About
/// 200 KiB a connection. Advance fails as kUnauthenticated (the peer does not speak TLS, or not
/// with this key), kUnavailable (it closed the socket), kInternal (OpenSSL is set up without
/// TLS 1.3).
std::unique_ptr<ConnectionSetup> MakeTlsSetup(UniqueFd socket,
                                              TrafficClass traffic_class,
                                              bool dialled,
                                              const Digest& key,
                                              uint64_t records_per_key = kTlsRecordsPerKey);

}  // namespace heddle::comm
