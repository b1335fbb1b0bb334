#include "comm/transport/handshake.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "base/bytes.h"
#include "base/check.h"

namespace heddle::comm {

std::string_view VerdictName(VerdictCode code) {
  switch (code) {
    case VerdictCode::kWelcome:
      return "welcome";
    case VerdictCode::kStaleGeneration:
      return "stale_generation";
    case VerdictCode::kWrongVersion:
      return "version";
    case VerdictCode::kWrongJob:
      return "job";
    case VerdictCode::kWrongSecret:
      return "secret";
    case VerdictCode::kWrongPeer:
      return "peer";
    case VerdictCode::kDuplicate:
      return "duplicate";
    case VerdictCode::kOverload:
      return "overload";
    case VerdictCode::kMalformed:
      return "malformed";
    case VerdictCode::kWrongTls:
      return "tls";
  }
  return "unknown";
}

Digest MakeNonce() {
  Digest nonce{};
  ssize_t got = 0;
  do {
    got = ::getrandom(nonce.data(), nonce.size(), 0);
  } while (got < 0 && errno == EINTR);
  HEDDLE_CHECK(got == static_cast<ssize_t>(nonce.size()), "getrandom gave {}", got);
  return nonce;
}

Digest Sha256(std::string_view text) {
  Digest digest{};
  unsigned int size = 0;
  const int done =
      EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
                 EVP_sha256(), nullptr);
  HEDDLE_CHECK(done == 1 && size == digest.size(), "SHA-256 failed");
  return digest;
}

Digest Hmac(std::string_view key, std::span<const std::byte> message) {
  Digest mac{};
  unsigned int size = 0;
  const auto* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(mac.data()), &size);
  HEDDLE_CHECK(done != nullptr && size == mac.size(), "HMAC failed");
  return mac;
}

namespace {

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
void Append(Bytes& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Bytes Transcript(std::string_view role, const Hello& hello, const Challenge& challenge) {
  Bytes message;
  const auto label = AsBytes(role);
  message.assign(label.begin(), label.end());
  Append(message, hello);
  Append(message, challenge);
  return message;
}

}  // namespace

Proof ProveDial(std::string_view secret, const Hello& hello, const Challenge& challenge, bool tls) {
  Proof proof{.tls = tls ? 1U : 0U};
  Bytes message = Transcript("heddle-dial", hello, challenge);
  Append(message, proof.tls);
  proof.mac = Hmac(secret, message);
  return proof;
}

Digest ProveAccept(std::string_view secret,
                   const Hello& hello,
                   const Challenge& challenge,
                   VerdictCode code) {
  Bytes message = Transcript("heddle-accept", hello, challenge);
  Append(message, code);
  return Hmac(secret, message);
}

Digest DeriveConnectionKey(std::string_view secret,
                           const Hello& hello,
                           const Challenge& challenge) {
  const Bytes salt = Transcript("heddle-tls", hello, challenge);
  const auto of_secret = AsBytes(secret);
  const Digest extracted = Hmac(TextOf(salt), of_secret);
  // Expanded to one block, of which the label and the number 1 are the whole message.
  const auto label = AsBytes("heddle tls 1.3 psk\x01");
  return Hmac(TextOf(extracted), label);
}

std::string TlsMismatch(bool own) {
  return fmt::format("TLS is {} here and {} there: comm.tls must be the same for all workers",
                     own ? "on" : "off", own ? "off" : "on");
}

bool SameDigest(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status CheckVerdict(const Identity& own,
                    const Hello& hello,
                    const Challenge& challenge,
                    const Verdict& verdict) {
  if (verdict.magic != static_cast<uint32_t>(kHandshakeMagic)) {
    return UnauthenticatedError("the answer is not Heddle's");
  }
  switch (verdict.code) {
    case VerdictCode::kWelcome:
      break;
    case VerdictCode::kStaleGeneration:
      return AbortedError("generation {} is stale there", hello.generation);
    case VerdictCode::kWrongVersion:
      return UnavailableError("refused: it speaks another protocol version than {}",
                              kProtocolVersion);
    case VerdictCode::kWrongJob:
    case VerdictCode::kWrongSecret:
      return UnauthenticatedError("refused: another job or secret");
    case VerdictCode::kWrongTls:
      return UnauthenticatedError("refused: {}", TlsMismatch(own.tls));
    default:
      return UnavailableError("refused: {}", VerdictName(verdict.code));
  }
  if (!SameDigest(verdict.mac, ProveAccept(own.secret, hello, challenge, verdict.code))) {
    return UnauthenticatedError("it does not know the job's secret");
  }
  return Status::Ok();
}

}  // namespace heddle::comm
