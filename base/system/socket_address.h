/// \file
/// Numeric socket addresses.
#pragma once

#include <string>

#include <sys/socket.h>

#include "base/status.h"

namespace heddle {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// Parses HOST:PORT with a numeric host of IPv4 or IPv6; the latter may be in brackets. Errors:
/// kInvalidArgument.
Result<SocketAddress> ParseSocketAddress(const std::string& address);

int PortOf(const SocketAddress& address);

/// Whether the address is reachable only from this machine.
bool IsLoopback(const SocketAddress& address);

/// The local address from which the kernel's route reaches `there`; its port has no meaning. Sends
/// nothing. Errors: kUnavailable (no route).
Result<SocketAddress> OwnAddressTowards(const SocketAddress& there);

/// The numeric host of the address; IPv6 without brackets.
std::string HostOf(const SocketAddress& address);

/// Returns HOST:PORT, with brackets around an IPv6 host.
std::string HostAndPort(const std::string& host, int port);

/// Raises this process' limit of open descriptors to the hard limit. Every connection takes
/// descriptors, and the usual soft limit is low.
void RaiseDescriptorLimit();

}  // namespace heddle
