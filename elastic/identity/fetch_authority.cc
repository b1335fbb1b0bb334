#include "elastic/identity/fetch_authority.h"

#include <algorithm>
#include <array>
#include <memory>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include "base/system/connect.h"
#include "elastic/identity/join_token.h"
#include "elastic/identity/openssl.h"

namespace heddle::elastic {
namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, OpenSslFree<&SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, OpenSslFree<&SSL_free>>;

// The list of ALPN protocols with HTTP/2, which gRPC requires.
constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};

Status WaitFor(int fd, short events, const std::string& address, Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()).count();
  pollfd polled{.fd = fd, .events = events, .revents = 0};
  if (Now() >= deadline ||
      ::poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000))) == 0) {
    return DeadlineExceededError("{}: no answer in time", address);
  }
  return Status::Ok();
}

Status Handshake(SSL* ssl, int fd, const std::string& address, Deadline deadline) {
  while (true) {
    ERR_clear_error();
    const int done = SSL_connect(ssl);
    if (done == 1) {
      return Status::Ok();
    }
    const int error = SSL_get_error(ssl, done);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
      const short events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      HEDDLE_RETURN_IF_ERROR(WaitFor(fd, events, address, deadline));
      continue;
    }
    if (error == SSL_ERROR_SYSCALL || error == SSL_ERROR_ZERO_RETURN) {
      ERR_clear_error();
      return UnavailableError("{}: the connection broke", address);
    }
    return OpenSslError(StatusCode::kUnauthenticated,
                        address +
                            ": what answers does not speak TLS: a coordinator without "
                            "--certs, or none");
  }
}

}  // namespace

Result<std::string> FetchAuthority(const std::string& address,
                                   const std::string& fingerprint,
                                   Deadline deadline) {
  HEDDLE_ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTo(address, deadline));
  const ContextPtr context(SSL_CTX_new(TLS_client_method()));
  const SslPtr ssl(context == nullptr ? nullptr : SSL_new(context.get()));
  if (ssl == nullptr || SSL_set_min_proto_version(ssl.get(), TLS1_2_VERSION) != 1 ||
      SSL_set_alpn_protos(ssl.get(), kHttp2.data(), kHttp2.size()) != 0 ||
      SSL_set_fd(ssl.get(), fd.get()) != 1) {
    return OpenSslError(StatusCode::kInternal, "TLS");
  }
  // The chain is not verified: the fingerprint decides.
  SSL_set_verify(ssl.get(), SSL_VERIFY_NONE, nullptr);
  HEDDLE_RETURN_IF_ERROR(Handshake(ssl.get(), fd.get(), address, deadline));
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl.get());  // Owned by ssl.
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(std::string pem, CertificatePem(sk_X509_value(chain, i)));
    HEDDLE_ASSIGN_OR_RETURN(const std::string found, FingerprintOf(pem));
    if (found == fingerprint) {
      return pem;
    }
  }
  return UnauthenticatedError(
      "{}: what answers is not of the lab that the join token was made for: no certificate has the "
      "token's fingerprint",
      address);
}

}  // namespace heddle::elastic
