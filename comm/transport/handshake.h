/// \file
/// The handshake that authenticates both ends by four fixed-size messages, before a connection
/// carries anything else:
///
///     dialler → acceptor   Hello      version, job, generation, ranks, name hashes, class, nonce
///     acceptor → dialler   Challenge  nonce
///     dialler → acceptor   Proof      TLS or not, HMAC-SHA256(secret, "dial" Hello Challenge TLS)
///     acceptor → dialler   Verdict    code, HMAC-SHA256(secret, "accept" Hello Challenge code)
///
/// Each side proves that it knows the secret by a MAC over both nonces and all claims, so a replay
/// of an earlier generation, a reflection or another pair's handshake proves nothing. Pure;
/// session.h sends and receives the messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::comm {

using Digest = std::array<std::byte, 32>;

inline constexpr uint64_t kHandshakeMagic =
    0x656C646465480A0D;  // "\r\nHeddle": no text protocol starts so.
inline constexpr uint32_t kProtocolVersion = 5;

struct Hello {
  uint64_t magic = kHandshakeMagic;
  uint32_t version = kProtocolVersion;
  uint32_t traffic_class = 0;  ///< Which of the pair's connections (traffic_class.h).
  int64_t generation = 0;
  int32_t source = 0;  ///< The dialler's rank.
  int32_t target = 0;  ///< The acceptor's rank.
  Digest job{};
  Digest source_name{};
  Digest target_name{};
  Digest nonce{};
};
static_assert(sizeof(Hello) == 160);

struct Challenge {
  uint64_t magic = kHandshakeMagic;
  uint32_t version = kProtocolVersion;
  uint32_t zero = 0;
  Digest nonce{};
};
static_assert(sizeof(Challenge) == 48);

struct Proof {
  uint32_t tls = 0;  ///< 1: the dialler uses TLS after the verdict (Identity::tls).
  Digest mac{};
};
static_assert(sizeof(Proof) == 36);

enum class VerdictCode : uint32_t {
  kWelcome = 0,
  kStaleGeneration = 1,
  kWrongVersion = 2,
  kWrongJob = 3,
  kWrongSecret = 4,
  kWrongPeer = 5,  ///< Rank, name or traffic class is not expected in this generation.
  kDuplicate = 6,  ///< This traffic class of the pair is connected already.
  kOverload = 7,
  kMalformed = 8,
  kWrongTls = 9,  ///< One end uses TLS and the other does not.
};
inline constexpr std::array kRefusals = {
    VerdictCode::kStaleGeneration, VerdictCode::kWrongVersion, VerdictCode::kWrongJob,
    VerdictCode::kWrongSecret,     VerdictCode::kWrongPeer,    VerdictCode::kDuplicate,
    VerdictCode::kOverload,        VerdictCode::kMalformed,    VerdictCode::kWrongTls};

/// The job, secret and TLS setting that a worker and its peers must have in common.
struct Identity {
  Digest job{};
  std::string secret;
  bool tls = false;  ///< Nothing but the handshake crosses the network unencrypted.
};

/// The verdict's value of the metric label `reason`.
std::string_view VerdictName(VerdictCode code);

struct Verdict {
  uint32_t magic = static_cast<uint32_t>(kHandshakeMagic);
  VerdictCode code = VerdictCode::kWelcome;
  Digest mac{};
};
static_assert(sizeof(Verdict) == 40);

/// Random bytes from the kernel.
Digest MakeNonce();
Digest Sha256(std::string_view text);

Proof ProveDial(std::string_view secret, const Hello& hello, const Challenge& challenge, bool tls);
Digest ProveAccept(std::string_view secret,
                   const Hello& hello,
                   const Challenge& challenge,
                   VerdictCode code);

/// Derives the key of this handshake's connection, for TLS or for the proofs of further sockets, by
/// HKDF-SHA256 (RFC 5869) from the secret, with all claims and both nonces as the salt.
Digest DeriveConnectionKey(std::string_view secret, const Hello& hello, const Challenge& challenge);

/// HMAC-SHA256.
Digest Hmac(std::string_view key, std::span<const std::byte> message);

/// The error text of an end with or without TLS (`own`) for a peer that differs, with the remedy.
std::string TlsMismatch(bool own);

/// Compares in time that does not depend on the contents.
bool SameDigest(const Digest& a, const Digest& b);

/// Checks a verdict at the dialler: ok for kWelcome with a valid MAC. Errors: kAborted (stale
/// generation), kUnauthenticated (another secret, job or TLS setting), kUnavailable (all others).
Status CheckVerdict(const Identity& own,
                    const Hello& hello,
                    const Challenge& challenge,
                    const Verdict& verdict);

}  // namespace heddle::comm
