#include "base/system/connect.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

namespace heddle {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// OK when the connection stands.
Status WaitConnected(int fd, const std::string& address, Deadline deadline) {
  pollfd polled{.fd = fd, .events = POLLOUT, .revents = 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()).count();
    const int ready = ::poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready > 0) {
      break;
    }
    if (Now() >= deadline) {
      return DeadlineExceededError("{}: no connection in time", address);
    }
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    return UnavailableError("{}: {}", address, std::generic_category().message(error));
  }
  return Status::Ok();
}

}  // namespace

Result<UniqueFd> ConnectTo(const std::string& address, Deadline deadline) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (colon == std::string::npos || host.empty()) {
    return InvalidArgumentError("expected HOST:PORT, got '{}'", address);
  }
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const addrinfo hints{.ai_flags = AI_NUMERICSERV,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  const AddressList list(found, &::freeaddrinfo);
  if (code != 0) {
    return UnavailableError("{}: {}", address, ::gai_strerror(code));
  }
  Status status;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    UniqueFd fd(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) {
      status = ErrnoError(errno, "a socket for " + address);
    } else if (::connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0 && errno != EINPROGRESS) {
      status = UnavailableError("{}: {}", address, std::generic_category().message(errno));
    } else {
      status = WaitConnected(fd.get(), address, deadline);
    }
    if (status.ok()) {
      return fd;
    }
  }
  return status;
}

}  // namespace heddle
