/// \file
/// TCP sockets for the transports whose handshakes run over TCP: listening on an address of this
/// machine and dialling from it. Thread: any.
#pragma once

#include <string>

#include <sys/socket.h>

#include "base/status.h"
#include "base/system/unique_fd.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

struct TcpListener {
  UniqueFd socket;      ///< Non-blocking.
  std::string address;  ///< Numeric "host:port" on which it listens.
};

/// Listens on a free port of `host`. Errors: kInvalidArgument (not an address of this machine),
/// kResourceExhausted.
Result<TcpListener> ListenTcp(const std::string& host);

/// Starts a connect to `to` ("host:port", numeric) and returns the non-blocking socket. The socket
/// is bound to the host of `from` ("host:port"), because on a machine with several networks the
/// kernel might choose another address than the one that this worker is configured to use. Errors:
/// kInvalidArgument, kUnavailable, kResourceExhausted.
Result<UniqueFd> DialTcp(const std::string& from, const std::string& to);

/// Sets the port of `own`, an address of this machine, to one that is currently free there. Errors:
/// kUnavailable, kResourceExhausted.
Status ChooseTcpPort(sockaddr_storage& own);

/// Sets socket options: no delay of small messages, cubic congestion control, and keepalive that
/// detects a vanished host within five seconds (deadlines bound every wait anyway). Packets of the
/// urgent traffic class get priority over bulk in the queue of this machine's network interface.
void TuneTcp(int fd, TrafficClass traffic_class);

/// Raises the time that sent bytes may stay unacknowledged to 30 s, for a socket whose reader may
/// pause because it reads other sockets first; else a full socket counts as a vanished host.
void WaitForReader(int fd);

/// Closes the socket by a TCP reset: the peer is notified at once and nothing lingers.
void CloseByReset(UniqueFd& socket);

}  // namespace heddle::comm
