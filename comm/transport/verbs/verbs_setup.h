/// \file
/// From an authenticated socket to a connection over a queue pair:
///
///     dialler → acceptor   VerbsHello over the socket
///     acceptor → dialler   VerbsHello, or why not
///                          InfiniBand and RoCE: each end brings its queue pair up by hand;
///                          iWARP: the dialler connects through librdmacm with the acceptor's token
///     dialler → acceptor   a probe over the queue pair; iWARP: repeated until it is answered
///     acceptor → dialler   a probe back
///     dialler → acceptor   one byte over the socket: both directions work, it begins
///
/// What fails, fails before either end has a connection, so that the pair can fall back to another
/// transport: a network that lets TCP through and drops RDMA is noticed here.
#pragma once

#include <memory>

#include "comm/transport/transport.h"
#include "comm/transport/verbs/verbs_device.h"

namespace heddle::comm {

std::unique_ptr<ConnectionSetup> MakeVerbsSetup(std::shared_ptr<VerbsDevice> device,
                                                UniqueFd socket,
                                                TrafficClass traffic_class,
                                                bool dialled);

}  // namespace heddle::comm
