/// \file
/// From an authenticated socket to a connection over it, or over several:
///
///     both        TcpHello: how many sockets this end would use; the acceptor's names a door
///     dialler     opens the others there, each with the acceptor's token and its number
///     dialler →   one byte: how many sockets there are. 1 when the door cannot be reached in time
///
/// Both then use the smaller of what they said. Not for the urgent lane, nor with TLS.
#pragma once

#include <memory>
#include <string>

#include "comm/transport.h"

namespace heddle::comm {

/// Sockets for one connection over the network interface of address `host`: one for each 10 Gbit/s
/// of a physical port (about what a core moves), else 1.
int TcpStreamsFor(const std::string& host);

/// `streams`: at this end, 1 to kMostStripes; `own` ("host:port"): where it listens, so that all
/// sockets are of that host.
std::unique_ptr<ConnectionSetup> MakeTcpSetup(
    UniqueFd socket, Lane lane, bool dialled, int streams, std::string own);

}  // namespace heddle::comm
