// A connection is its handshake's local socket, and nothing else: the least that a transport can
// be.
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "comm/transport/registry.h"
#include "comm/transport/transport.h"

namespace heddle::comm {
namespace {

constexpr const char* kName = "toy";

class ToyConnection final : public Connection {
 public:
  explicit ToyConnection(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  ConnectionInfo info() override { return {.transport = kName}; }
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
               : UnavailableError("{}", ErrnoError(errno, kName).message());
  }

  const UniqueFd pipe_;
};

class ToyTransport final : public SocketTransport {
 public:
  ToyTransport(UniqueFd listener, std::string name)
      : SocketTransport(kName),
        listener_(std::move(listener)),
        name_(std::move(name)) {}

  std::string address() const override { return name_; }
  std::vector<Listener> listeners() const override { return {{.socket = listener_.get()}}; }
  std::vector<Route> RoutesTo(const AddressParts& own,
                              const AddressParts& peer,
                              size_t /*number*/) const override {
    const bool here = peer.contains(kName) && own.at("host") == peer.at("host");
    return here ? std::vector<Route>{{.to = peer.at(kName)}} : std::vector<Route>();
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

  /// An abstract name: a zero byte, then the name.
  static socklen_t Address(const std::string& name, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }

 private:
  Result<std::unique_ptr<Connection>> FinishDial(UniqueFd socket,
                                                 TrafficClass /*traffic_class*/) const override {
    return std::unique_ptr<Connection>(std::make_unique<ToyConnection>(std::move(socket)));
  }
  Result<std::unique_ptr<Connection>> FinishAccept(UniqueFd& socket,
                                                   TrafficClass traffic_class) const override {
    return FinishDial(std::move(socket), traffic_class);
  }

  const UniqueFd listener_;
  const std::string name_;
};

Result<std::unique_ptr<Transport>> Open(const TransportSettings& /*settings*/) {
  std::random_device random;
  const std::string name = fmt::format("heddle-toy-{:08x}{:08x}", random(), random());
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const socklen_t size = ToyTransport::Address(name, address);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener.get(), 512) != 0) {
    return ErrnoError(errno, "local socket");
  }
  return std::unique_ptr<Transport>(std::make_unique<ToyTransport>(std::move(listener), name));
}

const RegisteredTransport kRegistered(kName, &Open);

}  // namespace
}  // namespace heddle::comm
