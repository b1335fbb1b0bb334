/// \file
/// Numeric addresses of sockets.
#pragma once

#include <string>

#include <sys/socket.h>

#include "base/status.h"

namespace heddle {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// HOST:PORT with a numeric host of IPv4 or IPv6, the latter also in brackets. Errors:
/// kInvalidArgument.
Result<SocketAddress> ParseSocketAddress(const std::string& address);

int PortOf(const SocketAddress& address);

/// Whether only this machine reaches it.
bool IsLoopback(const SocketAddress& address);

/// Where the kernel's route to `there` begins on this machine, with any port; sends nothing.
/// Errors: kUnavailable (no route).
Result<SocketAddress> OwnAddressTowards(const SocketAddress& there);

/// The numeric host, an IPv6 one without brackets.
std::string HostOf(const SocketAddress& address);

/// Raises how many descriptors this process may have to the most that it is allowed: every
/// connection takes one, and the usual first bound is of a time with few of them.
void RaiseDescriptorLimit();

}  // namespace heddle
