/// \file
/// The setup of a connection over a queue pair from an authenticated socket:
///
///     dialler → acceptor   VerbsHello over the socket
///     acceptor → dialler   VerbsHello, or the reason of a refusal
///                          InfiniBand and RoCE: each end changes its queue pair's state itself;
///                          iWARP: the dialler connects through librdmacm with the acceptor's token
///     dialler → acceptor   a probe over the queue pair; iWARP: repeated until the reply
///     acceptor → dialler   a probe back
///     dialler → acceptor   one byte over the socket: both directions work
///
/// A failure occurs before either end has a connection, so that the pair can fall back to another
/// transport. A network that passes TCP and drops RDMA is detected here.
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
