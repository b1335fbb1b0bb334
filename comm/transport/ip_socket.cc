#include "comm/transport/ip_socket.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <linux/pkt_sched.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace heddle::comm {

namespace {

/// Unsent bytes that the kernel may hold, so that an urgent frame is never behind megabytes of
/// bulk.
constexpr int kNotSentBytes = 256 << 10;
constexpr int kSilenceMilliseconds = 5'000;
/// The kernel counts the time in which a reader takes nothing, too.
constexpr int kReaderMilliseconds = 30'000;

void SetOption(int fd, int level, int name, int value) {
  // Tuning only: where an option is refused the connection works without it.
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

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

}  // namespace

void TuneTcp(int fd, TrafficClass traffic_class) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (traffic_class == TrafficClass::kUrgent) {
    SetOption(fd, SOL_SOCKET, SO_PRIORITY, TC_PRIO_INTERACTIVE);
  }
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentBytes);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceMilliseconds);
  // The host's default may be made for wide areas; on one switch and on loopback cubic is twice as
  // fast.
  constexpr std::string_view kCubic = "cubic";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCubic.data(),
               static_cast<socklen_t>(kCubic.size()));
}

void WaitForReader(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kReaderMilliseconds);
}

Status ChooseTcpPort(sockaddr_storage& own) {
  // At the same place for both families.
  in_port_t& port = reinterpret_cast<sockaddr_in*>(&own)->sin_port;
  port = 0;
  const UniqueFd probe(::socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) {
    return ErrnoError(errno, "socket");
  }
  sockaddr_storage bound = own;
  socklen_t size = sizeof(bound);
  if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&bound), size) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return UnavailableError("{}", ErrnoError(errno, "a free port").message());
  }
  port = reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  return Status::Ok();
}

void CloseByReset(UniqueFd& socket) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  socket.Reset();
}

Result<TcpListener> ListenTcp(const std::string& host) {
  HEDDLE_ASSIGN_OR_RETURN(Resolved at, Resolve(host, "0", AI_PASSIVE));
  UniqueFd socket(::socket(at.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return ErrnoError(errno, "socket");
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&at.address);
  if (::bind(socket.get(), address, at.size) != 0) {
    const int error = errno;
    return error == EADDRNOTAVAIL
               ? InvalidArgumentError("bind host {} is not an address of this machine", host)
               : ErrnoError(error, fmt::format("bind {}", host));
  }
  if (::listen(socket.get(), 512) != 0) {
    return ErrnoError(errno, "listen");
  }
  at.size = sizeof(at.address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at.address), &at.size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  char name[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  const int error =
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&at.address), at.size, name, sizeof(name),
                    port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) {
    return InternalError("getnameinfo: {}", ::gai_strerror(error));
  }
  return TcpListener{.socket = std::move(socket), .address = fmt::format("{}:{}", name, port)};
}

Result<UniqueFd> DialTcp(const std::string& from, const std::string& to) {
  const size_t colon = to.rfind(':');
  if (colon == std::string::npos) {
    return InvalidArgumentError("tcp address {} without a port", to);
  }
  HEDDLE_ASSIGN_OR_RETURN(const Resolved target,
                          Resolve(to.substr(0, colon), to.substr(colon + 1), AI_NUMERICHOST));
  UniqueFd socket(
      ::socket(target.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return ErrnoError(errno, "socket");
  }
  HEDDLE_ASSIGN_OR_RETURN(const Resolved own,
                          Resolve(from.substr(0, from.rfind(':')), "0", AI_NUMERICHOST));
  SetOption(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (own.address.ss_family == target.address.ss_family &&
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own.address), own.size) != 0) {
    return ErrnoError(errno, "bind");
  }
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target.address), target.size) !=
          0 &&
      errno != EINPROGRESS) {
    return UnavailableError("{}", ErrnoError(errno, fmt::format("connect {}", to)).message());
  }
  return socket;
}

}  // namespace heddle::comm
