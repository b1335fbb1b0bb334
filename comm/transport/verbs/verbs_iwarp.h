/// \file
/// iWARP: from what both ends have told each other to joined queue pairs, through librdmacm.
#pragma once

#include <functional>
#include <string_view>

#include <rdma/rdma_cma.h>

#include "comm/transport/verbs/verbs_stream.h"

namespace heddle::comm {

/// One end. The acceptor listens at a port of its own, where the dialler shows the acceptor's
/// token.
class IwarpConnector {
 public:
  /// Both stay as long as it does; `peer` has been checked.
  IwarpConnector(VerbsStream& stream, const VerbsHello& peer, bool dialled)
      : stream_(stream),
        peer_(peer),
        dialled_(dialled),
        token_(dialled ? peer.token : MakeNonce()) {}

  /// The acceptor's beginning: listens at the address of `socket`, and says in `hello` where and
  /// for whom.
  Status Listen(int socket, VerbsHello& hello);
  /// The dialler's: on its way to the address of the peer of `socket`.
  Status Connect(int socket);
  /// Ready to read when Advance should be called. Precondition: one of the above went well.
  int fd() const { return events_->fd; }
  /// Takes one event; false: there is none. Errors: kUnavailable.
  Result<bool> Advance();
  /// The queue pairs are joined.
  bool established() const { return established_; }

 private:
  Status Open();
  Status MakeIdentifier();
  /// Makes `call`, which binds the identifier to `own`, with a port that TCP has free.
  Status WithFreePort(std::string_view what,
                      sockaddr_storage& own,
                      const std::function<int()>& call);
  Status OnEvent(rdma_cm_event_type type, rdma_cm_id* id);

  VerbsStream& stream_;
  const VerbsHello& peer_;
  const bool dialled_;
  const Digest token_;
  VerbsHandle<rdma_event_channel> channel_;  ///< Until the queue pair has it, and the dialler's
  VerbsHandle<rdma_cm_id> id_;               ///< identifier. The acceptor's listens, and stays.
  rdma_event_channel* events_ = nullptr;     ///< The same channel, whoever has it.
  bool established_ = false;
};

}  // namespace heddle::comm
