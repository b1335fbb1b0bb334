/// \file
/// Who is there? Four fixed-size messages before a connection carries anything:
///
///     dialler → acceptor   Hello      version, job, generation, ranks, name hashes, class, nonce
///     acceptor → dialler   Challenge  nonce
///     dialler → acceptor   Proof      TLS or not, HMAC-SHA256(secret, "dial" Hello Challenge TLS)
///     acceptor → dialler   Verdict    code, HMAC-SHA256(secret, "accept" Hello Challenge code)
///
/// Each side proves the secret over both nonces and everything that was claimed, so a recording of
/// an earlier generation, a reflection or another pair's handshake proves nothing. Pure; session.h
/// moves the messages.
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
inline constexpr uint32_t kProtocolVersion = 4;

struct Hello {
  uint64_t magic = kHandshakeMagic;
  uint32_t version = kProtocolVersion;
  uint32_t traffic_class = 0;  ///< Which of the pair's connections (traffic_class.h).
  int64_t generation = 0;
  int32_t source = 0;  ///< The dialler's rank.
  int32_t target = 0;  ///< The acceptor's.
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
  uint32_t tls = 0;  ///< 1: what follows the verdict is encrypted (Identity::tls).
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

/// What a worker proves to others, and others to it.
struct Identity {
  Digest job{};
  std::string secret;
  bool tls = false;  ///< Nothing but the handshake crosses the network unencrypted.
};

/// The value of the metric label `reason`.
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

/// The key of this handshake's connection (TLS's, or that of further sockets' proofs): HKDF-SHA256
/// (RFC 5869) of the secret, salted with all that was claimed and both nonces.
Digest DeriveConnectionKey(std::string_view secret, const Hello& hello, const Challenge& challenge);

/// HMAC-SHA256.
Digest Hmac(std::string_view key, std::span<const std::byte> message);

/// What an end with or without TLS (`own`) says of one that differs, and what to do about it.
std::string TlsMismatch(bool own);

/// Compares in time that does not depend on the contents.
bool SameDigest(const Digest& a, const Digest& b);

/// What a dialler makes of a verdict: kAborted (stale generation), kUnauthenticated (secret, job or
/// TLS), kUnavailable. Success is kWelcome with a valid mac.
Status CheckVerdict(const Identity& own,
                    const Hello& hello,
                    const Challenge& challenge,
                    const Verdict& verdict);

}  // namespace heddle::comm
