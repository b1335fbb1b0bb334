#include "comm/transport/tcp/tls_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/check.h"
#include "comm/transport/ip_socket.h"

namespace heddle::comm {

namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
/// Ciphertext that goes to the socket, and comes from it, at once.
constexpr size_t kBatchBytes = size_t{64} << 10;
constexpr std::string_view kKeyIdentity = "heddle";
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteNumber[] = {0x13, 0x01};

/// What OpenSSL says of the failure of this thread's last call; never empty.
std::string Reason() {
  const auto error = ERR_peek_error();
  const char* const text = error == 0 ? nullptr : ERR_reason_error_string(error);
  return text == nullptr ? "unknown failure" : text;
}

class TlsConnection final : public Connection {
 public:
  TlsConnection(UniqueFd socket,
                TrafficClass traffic_class,
                const Digest& key,
                uint64_t records_per_key);
  /// Errors: kInternal (this machine's OpenSSL cannot do it).
  Status Begin(bool client);
  ~TlsConnection() override {
    SSL_free(ssl_);
    OPENSSL_cleanse(key_.data(), key_.size());
  }

  int fd() const { return socket_.get(); }
  /// True once both ends have shown the key. Errors: MakeTlsSetup's.
  Result<bool> Handshake();

  ConnectionInfo info() override { return {.transport = "tcp"}; }
  Result<size_t> Write(std::span<const iovec> parts) override;
  Result<size_t> Read(std::span<std::byte> buffer) override;
  std::array<Watch, 2> Watches(bool want_read, bool want_write) override;
  Watch SleepOn(bool want_write) const override;
  /// What OpenSSL has taken from the socket makes no descriptor ready any more.
  bool PrepareToWait(bool want_read, bool /*want_write*/) override {
    return !want_read || drained_;
  }
  void Close(Ending how) override;

 private:
  struct Callbacks;

  /// Hands ciphertext to the socket; true when none is left.
  Result<bool> Flush();
  /// Makes the bytes at `offset` of `parts` one record, and returns how many it holds.
  Result<size_t> Seal(std::span<const iovec> parts, size_t offset);
  /// Why an operation of OpenSSL failed for good.
  Status Failure(StatusCode code) const;

  UniqueFd socket_;
  const TrafficClass traffic_class_;
  const uint64_t records_per_key_;
  SSL* ssl_ = nullptr;
  Digest key_;
  int socket_error_ = 0;  ///< errno of a failed read of the socket; 0: none failed.
  bool ended_ = false;    ///< The socket has come to its end.
  Status read_failure_;   ///< Failure of a read that returned bytes first.
  bool drained_ = false;  ///< Neither OpenSSL nor the socket had a whole record, when last asked.

  std::vector<std::byte>
      sealed_;  ///< Ciphertext on its way to the socket; `sent_` bytes are there.
  size_t sent_ = 0;
  /// Plain bytes at the beginning of the caller's next write that are in records already. They do
  /// not count as written before their last record is in the socket, so that no bytes wait here
  /// that the caller counts as written; a caller with bytes to write sends the rest.
  size_t ahead_ = 0;
  uint64_t records_ = 0;              ///< Records under the current key of this direction.
  std::vector<std::byte> scattered_;  ///< A record's bytes that lie in several parts.
};

struct TlsConnection::Callbacks {
  static TlsConnection& Of(SSL* ssl) { return *static_cast<TlsConnection*>(SSL_get_app_data(ssl)); }
  static TlsConnection& Of(BIO* bio) { return *static_cast<TlsConnection*>(BIO_get_data(bio)); }

  // OpenSSL's records go through these instead of its own sockets' calls: it would make one call a
  // record, and none knows MSG_NOSIGNAL.
  static int Write(BIO* bio, const char* data, size_t size, size_t* written) {
    auto& sealed = Of(bio).sealed_;
    const auto* const bytes = reinterpret_cast<const std::byte*>(data);
    sealed.insert(sealed.end(), bytes, bytes + size);
    *written = size;
    return 1;
  }
  static int Read(BIO* bio, char* data, size_t size, size_t* got) {
    TlsConnection& self = Of(bio);
    BIO_clear_retry_flags(bio);
    *got = 0;
    const ssize_t read = ::recv(self.socket_.get(), data, size, MSG_DONTWAIT);
    if (read > 0) {
      *got = static_cast<size_t>(read);
      return 1;
    }
    if (read < 0 && (errno == EAGAIN || errno == EINTR)) {
      BIO_set_retry_read(bio);
    } else if (read < 0) {
      self.socket_error_ = errno;
    } else {
      self.ended_ = true;
    }
    return 0;
  }
  static long Control(BIO* /*bio*/, int command, long /*number*/, void* /*data*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static SSL_SESSION* MakeSession(SSL* ssl) {
    const Digest& key = Of(ssl).key_;
    SSL_SESSION* const session = SSL_SESSION_new();
    const auto* const bytes = reinterpret_cast<const unsigned char*>(key.data());
    if (session == nullptr || SSL_SESSION_set1_master_key(session, bytes, key.size()) != 1 ||
        SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kSuiteNumber)) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
      SSL_SESSION_free(session);
      return nullptr;
    }
    return session;
  }
  static int OfferKey(SSL* ssl,
                      const EVP_MD* digest,
                      const unsigned char** identity,
                      size_t* size,
                      SSL_SESSION** session) {
    *session = nullptr;
    if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) {
      return 1;  // A server that wants another suite gets no key, and so no connection.
    }
    *identity = reinterpret_cast<const unsigned char*>(kKeyIdentity.data());
    *size = kKeyIdentity.size();
    *session = MakeSession(ssl);
    return *session == nullptr ? 0 : 1;
  }
  static int FindKey(SSL* ssl, const unsigned char* identity, size_t size, SSL_SESSION** session) {
    const std::string_view name(reinterpret_cast<const char*>(identity), size);
    *session = name == kKeyIdentity ? MakeSession(ssl) : nullptr;
    return 1;
  }

  static BIO_METHOD* MakeMethod() {
    BIO_METHOD* const method =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "heddle's socket");
    if (method == nullptr || BIO_meth_set_write_ex(method, Write) != 1 ||
        BIO_meth_set_read_ex(method, Read) != 1 || BIO_meth_set_ctrl(method, Control) != 1) {
      BIO_meth_free(method);
      return nullptr;
    }
    return method;
  }
  static SSL_CTX* MakeContext() {
    SSL_CTX* const context = SSL_CTX_new(TLS_method());
    if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, kSuite) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1) {
      SSL_CTX_free(context);
      return nullptr;
    }
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_psk_use_session_callback(context, OfferKey);
    SSL_CTX_set_psk_find_session_callback(context, FindKey);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, kBatchBytes);
    return context;
  }
};

TlsConnection::TlsConnection(UniqueFd socket,
                             TrafficClass traffic_class,
                             const Digest& key,
                             uint64_t records_per_key)
    : socket_(std::move(socket)),
      traffic_class_(traffic_class),
      records_per_key_(records_per_key),
      key_(key),
      scattered_(kRecordBytes) {
  sealed_.reserve(kBatchBytes + 2 * kRecordBytes);
}

Status TlsConnection::Begin(bool client) {
  // One of each for all connections, and for as long as the process lives; null: not to be had.
  static BIO_METHOD* const kMethod = Callbacks::MakeMethod();
  static SSL_CTX* const kContext = Callbacks::MakeContext();
  BIO* const bio = kMethod == nullptr ? nullptr : BIO_new(kMethod);
  ssl_ = kContext == nullptr ? nullptr : SSL_new(kContext);
  if (bio == nullptr || ssl_ == nullptr) {
    BIO_free(bio);
    return InternalError("TLS: OpenSSL here has no TLS 1.3 with {}", kSuite);
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  if (client) {
    // A server that presents a certificate instead is refused, because no authority is trusted.
    SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
  TuneTcp(socket_.get(), traffic_class_);
  return Status::Ok();
}

Status TlsConnection::Failure(StatusCode code) const {
  if (ended_) {
    return UnavailableError("the peer closed the connection");
  }
  if (socket_error_ != 0) {
    return UnavailableError("read: {}", ErrnoError(socket_error_, "tcp").message());
  }
  return {code, fmt::format("TLS: {}", Reason())};
}

Result<bool> TlsConnection::Flush() {
  while (sent_ < sealed_.size()) {
    const ssize_t written = ::send(socket_.get(), sealed_.data() + sent_, sealed_.size() - sent_,
                                   MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) {
      return false;
    }
    if (written < 0) {
      return UnavailableError("write: {}", ErrnoError(errno, "tcp").message());
    }
    sent_ += static_cast<size_t>(written);
  }
  sealed_.clear();
  sent_ = 0;
  return true;
}

Result<bool> TlsConnection::Handshake() {
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_);
  const bool waits = done != 1 && SSL_get_error(ssl_, done) == SSL_ERROR_WANT_READ;
  const Status failure = done == 1 || waits ? Status::Ok() : Failure(StatusCode::kUnauthenticated);
  // An end that fails tells the other, too.
  const Result<bool> flushed = Flush();
  HEDDLE_RETURN_IF_ERROR(failure);
  HEDDLE_RETURN_IF_ERROR(flushed.status());
  if (!*flushed) {  // A few hundred bytes at the beginning of a connection.
    return UnavailableError("write: short");
  }
  if (waits) {
    return false;
  }
  if (SSL_session_reused(ssl_) != 1 || SSL_version(ssl_) != TLS1_3_VERSION) {
    return UnauthenticatedError("TLS: the peer did not show this connection's key");
  }
  return true;
}

Result<size_t> TlsConnection::Seal(std::span<const iovec> parts, size_t offset) {
  const std::byte* data = nullptr;
  size_t size = 0;
  for (const iovec& part : parts) {
    if (offset >= part.iov_len) {
      offset -= part.iov_len;
      continue;
    }
    const auto* const from = static_cast<const std::byte*>(part.iov_base) + offset;
    const size_t piece = std::min(part.iov_len - offset, kRecordBytes - size);
    offset = 0;
    if (size == 0) {
      data = from;
    } else if (piece > 0) {
      if (data != scattered_.data()) {
        std::memcpy(scattered_.data(), data, size);
        data = scattered_.data();
      }
      std::memcpy(scattered_.data() + size, from, piece);
    }
    size += piece;
  }
  ERR_clear_error();
  if (++records_ > records_per_key_) {
    records_ = 1;
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
      return Failure(StatusCode::kInternal);
    }
  }
  size_t sealed = 0;
  if (SSL_write_ex(ssl_, data, size, &sealed) != 1) {
    return Failure(StatusCode::kInternal);
  }
  return sealed;
}

Result<size_t> TlsConnection::Write(std::span<const iovec> parts) {
  size_t offered = 0;
  for (const iovec& part : parts) {
    offered += part.iov_len;
  }
  size_t written = 0;
  size_t sealed = std::min(ahead_, offered);
  size_t beyond = ahead_ - sealed;  // The caller offers less than it did before.
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const bool flushed, Flush());
    if (!flushed) {
      break;
    }
    written = sealed;
    if (sealed == offered) {
      break;
    }
    while (sealed < offered && sealed_.size() < kBatchBytes) {
      HEDDLE_ASSIGN_OR_RETURN(const size_t more, Seal(parts, sealed));
      sealed += more;
    }
  }
  ahead_ = sealed - written + beyond;
  return written;
}

Result<size_t> TlsConnection::Read(std::span<std::byte> buffer) {
  if (!read_failure_.ok()) {
    return read_failure_;
  }
  drained_ = false;
  size_t read = 0;
  while (read < buffer.size()) {
    ERR_clear_error();
    size_t more = 0;
    const int done = SSL_read_ex(ssl_, buffer.data() + read, buffer.size() - read, &more);
    if (done == 1) {
      read += more;
      continue;
    }
    const int error = SSL_get_error(ssl_, done);
    if (error == SSL_ERROR_WANT_READ) {
      drained_ = true;
      break;
    }
    ended_ = ended_ || error == SSL_ERROR_ZERO_RETURN;
    read_failure_ = Failure(StatusCode::kDataLoss);
    if (read == 0) {
      return read_failure_;
    }
    break;
  }
  return read;
}

std::array<Connection::Watch, 2> TlsConnection::Watches(bool want_read, bool want_write) {
  const uint32_t events = (want_read ? static_cast<uint32_t>(EPOLLIN | EPOLLRDHUP) : 0U) |
                          (want_write ? static_cast<uint32_t>(EPOLLOUT) : 0U);
  return {Watch{.fd = socket_.get(), .events = events}, Watch{}};
}

Connection::Watch TlsConnection::SleepOn(bool want_write) const {
  return {.fd = socket_.get(),
          .events = static_cast<uint32_t>(EPOLLIN) | (want_write ? EPOLLOUT : 0U)};
}

void TlsConnection::Close(Ending how) {
  if (how == Ending::kAtOnce) {
    CloseByReset(socket_);
    return;
  }
  ERR_clear_error();
  SSL_shutdown(ssl_);
  Flush().status().IgnoreError("the frames themselves say how a stream ends");
  ::shutdown(socket_.get(), SHUT_WR);
}

class TlsSetup final : public ConnectionSetup {
 public:
  TlsSetup(std::unique_ptr<TlsConnection> connection, bool dialled)
      : connection_(std::move(connection)),
        fd_(connection_->fd()),
        begun_(connection_->Begin(dialled)) {}

  int fd() const override { return fd_; }
  Result<std::unique_ptr<Connection>> Advance() override {
    HEDDLE_RETURN_IF_ERROR(begun_);
    HEDDLE_ASSIGN_OR_RETURN(const bool done, connection_->Handshake());
    return done ? std::unique_ptr<Connection>(std::move(connection_)) : nullptr;
  }

 private:
  std::unique_ptr<TlsConnection> connection_;
  const int fd_;
  const Status begun_;
};

}  // namespace

std::unique_ptr<ConnectionSetup> MakeTlsSetup(UniqueFd socket,
                                              TrafficClass traffic_class,
                                              bool dialled,
                                              const Digest& key,
                                              uint64_t records_per_key) {
  return std::make_unique<TlsSetup>(
      std::make_unique<TlsConnection>(std::move(socket), traffic_class, key, records_per_key),
      dialled);
}

}  // namespace heddle::comm
