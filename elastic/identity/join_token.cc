#include "elastic/identity/join_token.h"

#include <array>
#include <span>

#include <openssl/rand.h>

#include "elastic/identity/openssl.h"

namespace heddle::elastic {
namespace {

constexpr std::string_view kPrefix = "heddle-join.";
constexpr size_t kBytes = 32;
constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::string_view kWhiteSpace = " \t\r\n";
// Prefix of hashed text, so that no hash of something else equals that of a token.
constexpr const char* kHashOf = "heddle join token ";

std::string Hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool IsDigits(std::string_view text) {
  return text.size() == 2 * kBytes && text.find_first_not_of(kDigits) == std::string_view::npos;
}

}  // namespace

Result<std::string> FingerprintOf(const std::string& certificate_pem) {
  HEDDLE_ASSIGN_OR_RETURN(const CertificatePtr certificate, ReadCertificate(certificate_pem));
  std::array<unsigned char, kBytes> digest{};
  unsigned int size = 0;
  if (X509_digest(certificate.get(), EVP_sha256(), digest.data(), &size) != 1) {
    return OpenSslError(StatusCode::kInternal, "a certificate's fingerprint");
  }
  return Hex(digest);
}

Result<JoinToken> DrawJoinToken(const std::string& authority_pem) {
  JoinToken token;
  HEDDLE_ASSIGN_OR_RETURN(token.fingerprint, FingerprintOf(authority_pem));
  std::array<unsigned char, kBytes> secret{};
  if (RAND_bytes(secret.data(), static_cast<int>(secret.size())) != 1) {
    return OpenSslError(StatusCode::kInternal, "draw a token");
  }
  token.secret = Hex(secret);
  return token;
}

std::string JoinTokenText(const JoinToken& token) {
  return std::string(kPrefix) + token.secret + "." + token.fingerprint;
}

Result<JoinToken> ParseJoinToken(const std::string& text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  std::string_view rest = text;
  rest = begin == std::string::npos
             ? std::string_view()
             : rest.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
  const bool begins = rest.starts_with(kPrefix);
  rest.remove_prefix(begins ? kPrefix.size() : 0);
  const size_t dot = rest.find('.');
  if (!begins || dot == std::string_view::npos || !IsDigits(rest.substr(0, dot)) ||
      !IsDigits(rest.substr(dot + 1))) {
    return InvalidArgumentError("not a join token, expected {}SECRET.FINGERPRINT", kPrefix);
  }
  return JoinToken{.secret = std::string(rest.substr(0, dot)),
                   .fingerprint = std::string(rest.substr(dot + 1))};
}

std::string HashOfSecret(const std::string& secret) {
  const std::string text = kHashOf + secret;
  std::array<unsigned char, kBytes> digest{};
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return Hex(digest);
}

}  // namespace heddle::elastic
