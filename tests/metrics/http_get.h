/// \file
/// A minimal HTTP client for tests: one request a connection, every wait with a time limit.
#pragma once

#include <array>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/system/unique_fd.h"

namespace heddle {

/// A connection to 127.0.0.1:port whose reads and writes end after five seconds.
inline UniqueFd Connect(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval bound{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fd.Reset();
  }
  return fd;
}

struct HttpAnswer {
  int status = 0;  ///< 0: there was no answer.
  std::string head = {};
  std::string body = {};
};

inline HttpAnswer HttpRequest(int port,
                              const std::string& path,
                              const std::string& method = "GET") {
  const UniqueFd fd = Connect(port);
  const std::string request =
      method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (!fd.valid() || ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return {};
  }
  std::string all;
  std::array<char, 4096> piece;
  for (ssize_t got = 0; (got = ::recv(fd.get(), piece.data(), piece.size(), 0)) > 0;) {
    all.append(piece.data(), static_cast<size_t>(got));
  }
  const size_t end = all.find("\r\n\r\n");
  if (all.size() < 12 || end == std::string::npos) {
    return {};
  }
  return {.status = std::stoi(all.substr(9, 3)),
          .head = all.substr(0, end),
          .body = all.substr(end + 4)};
}

}  // namespace heddle
