/// \file
/// A transport over local sockets for tests: a connection is its handshake's socket. Kinds of it
/// say what a connection does besides.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "comm/transport/registry.h"
#include "comm/transport/transport.h"

namespace heddle::comm::testing {

class LocalConnection : public Connection {
 public:
  explicit LocalConnection(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  Result<size_t> Write(std::span<const iovec> parts) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    return Moved(::sendmsg(pipe_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    const ssize_t got = ::recv(pipe_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) {
      return UnavailableError("the peer closed the connection");
    }
    return Moved(got);
  }
  std::array<Watch, 2> Watches(bool want_read, bool want_write) override {
    const uint32_t events = (want_read ? static_cast<uint32_t>(EPOLLIN | EPOLLRDHUP) : 0U) |
                            (want_write ? static_cast<uint32_t>(EPOLLOUT) : 0U);
    return {Watch{.fd = pipe_.get(), .events = events}, Watch{}};
  }
  void Close(Ending how) override {
    ::shutdown(pipe_.get(), how == Ending::kWriting ? SHUT_WR : SHUT_RDWR);
  }

 private:
  static Result<size_t> Moved(ssize_t count) {
    if (count >= 0) {
      return static_cast<size_t>(count);
    }
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS
               ? Result<size_t>(size_t{0})
               : UnavailableError("{}", ErrnoError(errno, "a local socket").message());
  }

  const UniqueFd pipe_;
};

class LocalTransport : public SocketTransport {
 public:
  LocalTransport(const char* transport, UniqueFd listener, std::string name)
      : SocketTransport(transport),
        listener_(std::move(listener)),
        name_(std::move(name)) {}

  /// Opens a transport of this kind.
  template <typename Kind>
  static Result<std::unique_ptr<Transport>> Open(const TransportSettings& /*settings*/) {
    std::random_device random;
    const std::string name = fmt::format("heddle-local-{:08x}{:08x}", random(), random());
    UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    const socklen_t size = Address(name, address);
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(listener.get(), 512) != 0) {
      return ErrnoError(errno, "local socket");
    }
    return std::unique_ptr<Transport>(std::make_unique<Kind>(std::move(listener), name));
  }

  std::string address() const override { return name_; }
  std::vector<Listener> listeners() const override { return {{.socket = listener_.get()}}; }
  std::vector<Route> RoutesTo(const AddressParts& own,
                              const AddressParts& peer,
                              size_t /*number*/) const override {
    const bool here = peer.contains(this->name()) && own.at("host") == peer.at("host");
    return here ? std::vector<Route>{{.to = peer.at(this->name())}} : std::vector<Route>();
  }
  Result<UniqueFd> Dial(const Route& route) const override {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    const socklen_t size = Address(route.to, address);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      return UnavailableError("{}", ErrnoError(errno, "connect of a local socket").message());
    }
    return socket;
  }

 protected:
  virtual std::unique_ptr<Connection> Make(UniqueFd socket) const = 0;

 private:
  /// An abstract name: a zero byte, then the name.
  static socklen_t Address(const std::string& name, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  Result<std::unique_ptr<Connection>> FinishDial(UniqueFd socket,
                                                 TrafficClass /*traffic_class*/) const override {
    return Make(std::move(socket));
  }
  Result<std::unique_ptr<Connection>> FinishAccept(UniqueFd& socket,
                                                   TrafficClass traffic_class) const override {
    return FinishDial(std::move(socket), traffic_class);
  }

  const UniqueFd listener_;
  const std::string name_;
};

}  // namespace heddle::comm::testing
