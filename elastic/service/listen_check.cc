#include "elastic/service/listen_check.h"

#include <cerrno>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/system/unique_fd.h"

namespace heddle::elastic {
namespace {

// Fills a socket address of IPv4 or IPv6; its length, or 0 when `host` is no numeric address.
socklen_t FillAddress(const std::string& host, uint16_t port, sockaddr_storage& storage) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    return sizeof(sockaddr_in);
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return sizeof(sockaddr_in6);
  }
  return 0;
}

}  // namespace

Status CheckCanListen(const std::string& what, const std::string& address) {
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  const char* end = address.data() + address.size();
  const auto parsed = colon == std::string::npos
                          ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                          : std::from_chars(address.data() + colon + 1, end, port);
  sockaddr_storage storage{};
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const socklen_t length = FillAddress(host, port, storage);
  if (parsed.ec != std::errc() || parsed.ptr != end || length == 0) {
    return InvalidArgumentError("{}: expected HOST:PORT with a numeric address, got '{}'", what,
                                address);
  }
  const UniqueFd socket(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0 ||
      ::listen(socket.get(), 1) != 0) {
    return InvalidArgumentError("{}: cannot listen on {}: {}", what, address, std::strerror(errno));
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
