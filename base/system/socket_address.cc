#include "base/system/socket_address.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include "base/system/unique_fd.h"

namespace heddle {

Result<SocketAddress> ParseSocketAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  const char* end = address.data() + address.size();
  const auto parsed = colon == std::string::npos
                          ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                          : std::from_chars(address.data() + colon + 1, end, port);
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  SocketAddress out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.length = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    out.length = sizeof(sockaddr_in6);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end || out.length == 0) {
    return InvalidArgumentError("expected HOST:PORT with a numeric address, got '{}'", address);
  }
  return out;
}

int PortOf(const SocketAddress& address) {
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

bool IsLoopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const in6_addr& host = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&host) || (IN6_IS_ADDR_V4MAPPED(&host) && host.s6_addr[12] == 127);
}

// A datagram socket that is connected only asks the routes.
Result<SocketAddress> OwnAddressTowards(const SocketAddress& there) {
  const UniqueFd socket(::socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return UnavailableError("{}", ErrnoError(errno, "socket").message());
  }
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there.storage), there.length) !=
      0) {
    return UnavailableError("{}", ErrnoError(errno, "no route").message());
  }
  SocketAddress own{.storage = {}, .length = sizeof(own.storage)};
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  return own;
}

std::string HostOf(const SocketAddress& address) {
  const bool six = address.storage.ss_family == AF_INET6;
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(
      address.storage.ss_family,
      six ? static_cast<const void*>(&v6->sin6_addr) : static_cast<const void*>(&v4->sin_addr),
      text.data(), text.size());
  return text.data();
}

std::string HostAndPort(const std::string& host, int port) {
  const bool six = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", host, six ? "]" : "", port);
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);  // What is refused stays as it was.
  }
}

}  // namespace heddle
