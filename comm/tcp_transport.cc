// TCP: the transport between hosts.
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "comm/transport.h"

namespace heddle::comm {

namespace {

/// Unsent bytes that the kernel may hold, so that an urgent frame is never behind megabytes of
/// bulk.
constexpr int kNotSentBytes = 256 << 10;

void SetOption(int fd, int level, int name, int value) {
  // Tuning only: where an option is refused the connection works without it.
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

void Tune(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentBytes);
  // A host that vanishes without a word is noticed within seconds; deadlines bound every wait
  // besides.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
  // The host's default may be made for wide areas; on one switch and on loopback cubic is twice as
  // fast.
  constexpr std::string_view kCubic = "cubic";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCubic.data(),
               static_cast<socklen_t>(kCubic.size()));
}

class TcpConnection final : public Connection {
 public:
  explicit TcpConnection(UniqueFd socket) : socket_(std::move(socket)) { Tune(socket_.get()); }

  std::string_view transport() const override { return "tcp"; }

  Result<size_t> Write(std::span<const iovec> parts) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written >= 0) {
      return static_cast<size_t>(written);
    }
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) {
      return size_t{0};
    }
    return UnavailableError("write: {}", ErrnoError(errno, "tcp").message());
  }

  Result<size_t> Read(std::span<std::byte> buffer) override {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) {
      return static_cast<size_t>(got);
    }
    if (got == 0) {
      return UnavailableError("the peer closed the connection");
    }
    if (errno == EAGAIN || errno == EINTR) {
      return size_t{0};
    }
    return UnavailableError("read: {}", ErrnoError(errno, "tcp").message());
  }

  std::array<Watch, 2> Watches(bool want_read, bool want_write) override {
    const uint32_t events = (want_read ? static_cast<uint32_t>(EPOLLIN | EPOLLRDHUP) : 0U) |
                            (want_write ? static_cast<uint32_t>(EPOLLOUT) : 0U);
    return {Watch{.fd = socket_.get(), .events = events}, Watch{}};
  }

  void CloseWrite() override { ::shutdown(socket_.get(), SHUT_WR); }

  void Reset() override {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    socket_.Reset();
  }

 private:
  UniqueFd socket_;
};

struct Resolved {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Result<Resolved> Resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error != 0 || list == nullptr) {
    return InvalidArgumentError("address {}: {}", host, ::gai_strerror(error));
  }
  Resolved resolved;
  std::memcpy(&resolved.address, list->ai_addr, list->ai_addrlen);
  resolved.size = list->ai_addrlen;
  ::freeaddrinfo(list);
  return resolved;
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(UniqueFd listener, std::string address)
      : listener_(std::move(listener)),
        address_(std::move(address)) {}

  std::string_view name() const override { return "tcp"; }
  std::string address() const override { return address_; }
  int listen_fd() const override { return listener_.get(); }

  bool Reaches(const AddressParts& /*own*/, const AddressParts& peer) const override {
    return peer.contains("tcp");
  }

  Result<UniqueFd> Dial(const AddressParts& peer) const override {
    const std::string& text = peer.at("tcp");
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) {
      return InvalidArgumentError("tcp address {} without a port", text);
    }
    HEDDLE_ASSIGN_OR_RETURN(const Resolved to,
                            Resolve(text.substr(0, colon), text.substr(colon + 1), AI_NUMERICHOST));
    UniqueFd socket(::socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) {
      return ErrnoError(errno, "socket");
    }
    // From the address that this worker was told to use: on a host with several networks the route
    // might choose another.
    HEDDLE_ASSIGN_OR_RETURN(Resolved from,
                            Resolve(address_.substr(0, address_.rfind(':')), "0", AI_NUMERICHOST));
    SetOption(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (from.address.ss_family == to.address.ss_family &&
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&from.address), from.size) != 0) {
      return ErrnoError(errno, "bind");
    }
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0 &&
        errno != EINPROGRESS) {
      return UnavailableError("{}", ErrnoError(errno, fmt::format("connect {}", text)).message());
    }
    return socket;
  }

  Result<std::unique_ptr<Connection>> FinishDial(UniqueFd socket) const override {
    return std::unique_ptr<Connection>(std::make_unique<TcpConnection>(std::move(socket)));
  }
  Result<std::unique_ptr<Connection>> FinishAccept(UniqueFd& socket) const override {
    return std::unique_ptr<Connection>(std::make_unique<TcpConnection>(std::move(socket)));
  }
  bool accept_reads() const override { return false; }

 private:
  const UniqueFd listener_;
  const std::string address_;
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeTcpTransport(const EndpointOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(Resolved at, Resolve(options.bind_host, "0", AI_PASSIVE));
  UniqueFd socket(::socket(at.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return ErrnoError(errno, "socket");
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&at.address);
  if (::bind(socket.get(), address, at.size) != 0) {
    const int error = errno;
    return error == EADDRNOTAVAIL
               ? InvalidArgumentError("bind host {} is not an address of this machine",
                                      options.bind_host)
               : ErrnoError(error, fmt::format("bind {}", options.bind_host));
  }
  if (::listen(socket.get(), 512) != 0) {
    return ErrnoError(errno, "listen");
  }
  at.size = sizeof(at.address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at.address), &at.size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  const int error =
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&at.address), at.size, host, sizeof(host),
                    port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) {
    return InternalError("getnameinfo: {}", ::gai_strerror(error));
  }
  return std::unique_ptr<Transport>(
      std::make_unique<TcpTransport>(std::move(socket), fmt::format("{}:{}", host, port)));
}

}  // namespace heddle::comm
