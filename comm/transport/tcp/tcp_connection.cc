#include "comm/transport/tcp/tcp_connection.h"

#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "comm/transport/ip_socket.h"

namespace heddle::comm {

namespace {

class TcpConnection final : public Connection {
 public:
  TcpConnection(UniqueFd socket, TrafficClass traffic_class) : socket_(std::move(socket)) {
    TuneTcp(socket_.get(), traffic_class);
  }

  ConnectionInfo info() override { return {.transport = "tcp"}; }

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

  Watch SleepOn(bool want_write) const override {
    return {.fd = socket_.get(),
            .events = static_cast<uint32_t>(EPOLLIN) | (want_write ? EPOLLOUT : 0U)};
  }

  void Close(Ending how) override {
    if (how == Ending::kWriting) {
      ::shutdown(socket_.get(), SHUT_WR);
    } else {
      CloseByReset(socket_);
    }
  }

 private:
  UniqueFd socket_;
};

}  // namespace

std::unique_ptr<Connection> MakeTcpConnection(UniqueFd socket, TrafficClass traffic_class) {
  return std::make_unique<TcpConnection>(std::move(socket), traffic_class);
}

}  // namespace heddle::comm
