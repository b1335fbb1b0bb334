/// \file
/// The coordinator's end of one worker's stream. Included by the server only.
#pragma once

#include <functional>
#include <memory>

#include "elastic/control/coordinator/coordinator.h"

namespace grpc {
class CallbackServerContext;
template <class Request, class Response>
class ServerBidiReactor;
}  // namespace grpc

namespace heddle::elastic {

/// Owned by the map of sessions and, from Begin, by itself until gRPC is done with it. Thread: any.
class ServerSession {
 public:
  using Reactor = grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker>;
  /// Called from gRPC's threads; the next message is read after ReadMore only.
  using OnMessage = std::function<void(ConnectionId, wire::FromWorker)>;
  /// The last call: the stream has ended.
  using OnClosed = std::function<void(ConnectionId)>;

  virtual ~ServerSession() = default;
  virtual void Begin(std::shared_ptr<ServerSession> self) = 0;
  virtual void ReadMore() = 0;
  virtual void Send(const wire::ToWorker& message) = 0;
  /// Ends the stream after what was sent before.
  virtual void Close() = 0;
  virtual Reactor* reactor() = 0;
};

std::shared_ptr<ServerSession> MakeServerSession(ConnectionId id,
                                                 grpc::CallbackServerContext* context,
                                                 ServerSession::OnMessage on_message,
                                                 ServerSession::OnClosed on_closed);

}  // namespace heddle::elastic
