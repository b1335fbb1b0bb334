/// \file
/// The common base of both ends of a connection's setup over TCP (tcp_setup.h has the messages): it
/// sends, receives and waits with a timeout. Included by tcp_setup.cc only.
#pragma once

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/transport/tcp/tcp_connection.h"
#include "comm/transport/tcp/tcp_setup.h"
#include "comm/transport/tcp/tcp_stripes.h"

namespace heddle::comm {

struct TcpHello {
  static constexpr uint32_t kMagic = 0x31435448;  // "HTC1"
  uint32_t magic = kMagic;
  uint16_t streams = 1;
  uint16_t port = 0;  ///< Port of the acceptor's listener.
  Digest nonce{};     ///< Nonce of the acceptor.
};
static_assert(sizeof(TcpHello) == 40);

/// The first bytes of each further socket.
struct StripeHello {
  Digest proof{};
  uint32_t number = 0;  ///< Number of the socket, from 1.
};
static_assert(sizeof(StripeHello) == 36);

inline Digest ProveStripe(const Digest& key, const Digest& nonce, uint32_t number) {
  ByteWriter message;
  message.PutRaw(nonce);
  message.Put(number);
  return Hmac(std::string_view(reinterpret_cast<const char*>(key.data()), key.size()),
              message.bytes());
}

/// The numeric host of a socket's peer; empty: unknown.
inline std::string PeerHost(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), nullptr,
                    0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return host.data();
}

/// The common base of both ends of the setup.
class TcpSetup : public ConnectionSetup {
 public:
  TcpSetup(UniqueFd socket, const TcpSetupOptions& options)
      : socket_(std::move(socket)),
        options_(options),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  int fd() const override { return epoll_.get(); }

 protected:
  /// A further socket that does not belong to the connection yet.
  struct Coming {
    UniqueFd socket;
    StripeHello hello;
    size_t have = 0;  ///< Bytes of `hello` sent or received so far.
  };

  int socket() const { return socket_.get(); }
  const TcpSetupOptions& options() const { return options_; }

  Status Start() {
    return epoll_.valid() ? Watch(socket_, EPOLLIN | EPOLLRDHUP)
                          : ErrnoError(EMFILE, "epoll_create1");
  }
  Status Watch(const UniqueFd& fd, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd.get();
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0
               ? Status::Ok()
               : ErrnoError(errno, "epoll");
  }
  void Unwatch(const UniqueFd& fd) const {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
  }

  Status SetTimer(Duration bound) {
    timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    const itimerspec timing{.it_interval = {},
                            .it_value = {.tv_sec = bound.count() / 1'000'000'000,
                                         .tv_nsec = bound.count() % 1'000'000'000}};
    return timer_.valid() && ::timerfd_settime(timer_.get(), 0, &timing, nullptr) == 0
               ? Watch(timer_, EPOLLIN)
               : ErrnoError(errno, "timerfd");
  }
  bool IsLate() {
    uint64_t times = 0;
    late_ = late_ || ::read(timer_.get(), &times, sizeof(times)) == sizeof(times);
    return late_;
  }

  /// Receives a part of `message`. Returns whether it is complete. Errors: kUnavailable (the peer
  /// closed the socket).
  Result<bool> Receive(std::span<std::byte> message) {
    const auto rest = message.subspan(have_);
    const ssize_t got = ::recv(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return false;
    }
    if (got <= 0) {
      return UnavailableError("the peer closed the connection");
    }
    have_ += static_cast<size_t>(got);
    const bool whole = have_ == message.size();
    have_ = whole ? 0 : have_;
    return whole;
  }
  Result<bool> ReceiveHello(TcpHello& hello) {
    HEDDLE_ASSIGN_OR_RETURN(const bool whole,
                            Receive(std::as_writable_bytes(std::span(&hello, 1))));
    if (whole && (hello.magic != TcpHello::kMagic || hello.streams == 0)) {
      return DataLossError("its TCP parameters have another form");
    }
    return whole;
  }
  /// Checks that the peer is still connected and has sent nothing out of turn.
  Status ReceiveNothing() const {
    std::byte word{};
    const ssize_t got = ::recv(socket_.get(), &word, 1, MSG_DONTWAIT | MSG_PEEK);
    if (got > 0) {
      return DataLossError("it speaks before its turn");
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR)
               ? Status::Ok()
               : UnavailableError("the peer closed the connection");
  }
  template <typename T>
  Status Send(const T& message) const {
    // Smaller than any socket's buffer, so it goes whole or not at all.
    const ssize_t sent =
        ::send(socket_.get(), &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == sizeof(message) ? Status::Ok()
                                   : UnavailableError("{}", ErrnoError(errno, "write").message());
  }

  /// Makes the connection from the first socket and the `further` ones, which may be none.
  Result<std::unique_ptr<Connection>> Finish(std::vector<UniqueFd> further) {
    Unwatch(socket_);
    if (further.empty()) {
      return MakeTcpConnection(std::move(socket_), TrafficClass::kBulk);
    }
    further.insert(further.begin(), std::move(socket_));
    return MakeTcpStripes(std::move(further));
  }
  void NoteOneSocket(size_t wanted, std::string_view reason) const {
    LogWarning("one socket to {} instead of {}: {}", PeerHost(socket_.get()), wanted, reason);
  }

 private:
  UniqueFd socket_;
  const TcpSetupOptions options_;
  const UniqueFd epoll_;
  UniqueFd timer_;
  bool late_ = false;
  size_t have_ = 0;  ///< Bytes received so far of the current message.
};

}  // namespace heddle::comm
