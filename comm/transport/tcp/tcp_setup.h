/// \file
/// The setup of a connection over an authenticated TCP socket and possibly further sockets:
///
///     dialler → acceptor   TcpHello: number of sockets that it would use
///     acceptor → dialler   TcpHello: the smaller of that and its own number, the port of a
///                          listener, a nonce
///     dialler → listener   connects the further sockets; each proves the connection's key over
///                          the nonce
///     dialler → acceptor   one byte: number of sockets; 1 if the listener was not reached in time
///     acceptor → dialler   one byte: number of sockets that both use; 1 if not all arrived in time
///
/// If one socket is used, the setup ends after the two TcpHellos. Not used for the urgent traffic
/// class, nor with TLS.
#pragma once

#include <memory>
#include <string>

#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Number of sockets for one connection over the network interface with address `host`: one for
/// each 10 Gbit/s of a physical port, about what one core can move; else 1.
int TcpStreamsFor(const std::string& host);

struct TcpSetupOptions {
  int streams = 1;  ///< Number of sockets that this end would use, 1 to kMaxStripes.
  std::string own;  ///< "host:port" at which this end listens; all sockets use that host.
  Digest key{};     ///< The connection's key, the same at both ends.
};

std::unique_ptr<ConnectionSetup> MakeTcpSetup(UniqueFd socket,
                                              TrafficClass traffic_class,
                                              bool dialled,
                                              const TcpSetupOptions& options);

}  // namespace heddle::comm
