/// \file
/// From an authenticated socket to a connection over it, or over several:
///
///     dialler →   TcpHello: how many sockets it would use
///     ← acceptor  TcpHello: the smaller of that and its own, a listener's port, a nonce
///     dialler     opens the others at the listener; each proves the connection's key, over the
///     nonce dialler →   one byte: how many it has opened. 1 when the listener cannot be reached in
///     time ← acceptor  one byte: how many both use. 1 when they have not all come in time
///
/// With one socket the two TcpHellos are all. Not for the urgent traffic class, nor with TLS.
#pragma once

#include <memory>
#include <string>

#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Sockets for one connection over the network interface of address `host`: one for each 10 Gbit/s
/// of a physical port (about what a core moves), else 1.
int TcpStreamsFor(const std::string& host);

struct TcpSetupOptions {
  int streams = 1;  ///< At this end, 1 to kMostStripes.
  std::string own;  ///< "host:port" where it listens: all sockets are of that host.
  Digest key{};     ///< Of the connection; the same at both ends.
};

std::unique_ptr<ConnectionSetup> MakeTcpSetup(UniqueFd socket,
                                              TrafficClass traffic_class,
                                              bool dialled,
                                              const TcpSetupOptions& options);

}  // namespace heddle::comm
