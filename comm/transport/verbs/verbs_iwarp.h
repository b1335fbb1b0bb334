/// \file
/// iWARP: connects the queue pairs through librdmacm after both ends have exchanged VerbsHellos.
#pragma once

#include <functional>
#include <string_view>

#include <rdma/rdma_cma.h>

#include "comm/transport/verbs/verbs_stream.h"

namespace heddle::comm {

/// One end of an iWARP connection setup. The acceptor listens at a port of its own, where the
/// dialler presents the acceptor's token.
class IwarpConnector {
 public:
  /// `stream` and `peer` outlive it; `peer` has been validated.
  IwarpConnector(VerbsStream& stream, const VerbsHello& peer, bool dialled)
      : stream_(stream),
        peer_(peer),
        dialled_(dialled),
        token_(dialled ? peer.token : MakeNonce()) {}

  /// Starts the acceptor: listens at the address of `socket` and stores the port and the token in
  /// `hello`.
  Status Listen(int socket, VerbsHello& hello);
  /// Starts the dialler: connects to the host of the peer of `socket`.
  Status Connect(int socket);
  /// Descriptor that is ready to read when Advance should be called. Precondition: Listen or
  /// Connect succeeded.
  int fd() const { return events_->fd; }
  /// Handles one event; false: there is none. Errors: kUnavailable.
  Result<bool> Advance();
  /// Whether the queue pairs are connected.
  bool established() const { return established_; }

 private:
  Status Open();
  Status MakeIdentifier();
  /// Makes `call`, which binds the identifier to `own`, after setting its port to one that is free
  /// for TCP.
  Status WithFreePort(std::string_view what,
                      sockaddr_storage& own,
                      const std::function<int()>& call);
  Status OnEvent(rdma_cm_event_type type, rdma_cm_id* id);

  VerbsStream& stream_;
  const VerbsHello& peer_;
  const bool dialled_;
  const Digest token_;
  VerbsHandle<rdma_event_channel> channel_;  ///< Null once the queue pair owns it.
  VerbsHandle<rdma_cm_id> id_;               ///< At the dialler null once the queue pair owns it.
  rdma_event_channel* events_ = nullptr;     ///< The event channel, whichever object owns it.
  bool established_ = false;
};

}  // namespace heddle::comm
