/// \file
/// What transports that shake hands over TCP share: listening on an address of this machine and
/// dialling from it. Thread: any.
#pragma once

#include <string>

#include <sys/socket.h>

#include "base/status.h"
#include "base/system/unique_fd.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

struct TcpListener {
  UniqueFd socket;      ///< Non-blocking.
  std::string address;  ///< "host:port", numeric.
};

/// Listens on a free port of `host`. Errors: kInvalidArgument (not an address of this machine),
/// kResourceExhausted.
Result<TcpListener> ListenTcp(const std::string& host);

/// Starts a connect to `to` ("host:port", numeric) from the host of `from` ("host:port"): on a
/// machine with several networks the route might choose another address than the one that this
/// worker was told to use. Returns the non-blocking socket. Errors: kInvalidArgument, kUnavailable,
/// kResourceExhausted.
Result<UniqueFd> DialTcp(const std::string& from, const std::string& to);

/// Puts into `own`, an address of this machine, a port that is free there at this moment. Errors:
/// kUnavailable, kResourceExhausted.
Status ChooseTcpPort(sockaddr_storage& own);

/// No delays for small messages, cubic congestion control, and keepalive such that a host that
/// vanishes without a word is noticed within five seconds; deadlines bound every wait besides. The
/// urgent traffic class's packets pass those of bulk that wait for this machine's network
/// interface.
void TuneTcp(int fd, TrafficClass traffic_class);

/// For a socket whose bytes may stay unread for a while, because others' come first: so long a full
/// one is not taken for a vanished host.
void WaitForReader(int fd);

/// Makes the close that follows a reset: the peer learns of it at once, nothing lingers.
void CloseByReset(UniqueFd& socket);

}  // namespace heddle::comm
