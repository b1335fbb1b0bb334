/// \file
/// A byte stream over one TCP socket.
#pragma once

#include <memory>

#include "base/system/unique_fd.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Makes a connection over `socket`, which is connected and non-blocking.
std::unique_ptr<Connection> MakeTcpConnection(UniqueFd socket, TrafficClass traffic_class);

}  // namespace heddle::comm
