/// \file
/// The server side of workers' streams. Included by the server only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "elastic/control/coordinator/coordinator.h"

namespace grpc {
class CallbackServerContext;
template <class Request, class Response>
class ServerBidiReactor;
}  // namespace grpc

namespace heddle::elastic {

/// One worker's stream. Thread: any.
class ServerSession {
 public:
  virtual ~ServerSession() = default;
  /// Reads the next message; without this call only the first one is read.
  virtual void ReadMore() = 0;
  /// Queues a message. Never blocks; a stream with kMaxQueuedMessages waiting is cancelled.
  virtual void Send(const wire::ToWorker& message) = 0;
  /// Ends the stream once every queued message is sent.
  virtual void Close() = 0;
  /// Ends the stream now.
  virtual void Cancel() = 0;
  /// Ends the stream now with an error that the worker gets. Only while a message of the stream is
  /// being handled.
  virtual void Refuse(const Status& status) = 0;
};

/// All open streams. Thread: any.
class ServerSessions {
 public:
  using Reactor = grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker>;
  /// Called for each message, from gRPC's threads.
  using OnMessage = std::function<void(ConnectionId, wire::FromWorker)>;
  /// Called last, when the stream has ended and Find no longer finds it.
  using OnClosed = std::function<void(ConnectionId)>;

  /// Begins a stream, which calls back until it has ended; this object outlives it. The stream is
  /// cancelled if its first message is not a Hello or does not arrive within kHelloWithin, or if
  /// too many streams are without a Hello. `worker`: the name in the client's certificate; empty
  /// without one.
  Reactor* Open(grpc::CallbackServerContext* context,
                const std::string& worker,
                OnMessage on_message,
                OnClosed on_closed) HEDDLE_EXCLUDES(mutex_);
  /// Cancels all streams that were opened with the worker's certificates.
  void CancelOf(const std::string& worker) HEDDLE_EXCLUDES(mutex_);
  /// Cancels the streams whose Hello is overdue at `now`.
  void CancelUnnamed(Time now) HEDDLE_EXCLUDES(mutex_);
  /// The stream, or null if it has ended.
  std::shared_ptr<ServerSession> Find(ConnectionId id) const HEDDLE_EXCLUDES(mutex_);
  /// Waits until no stream is open; false if some are at `deadline`.
  bool WaitUntilNone(Deadline deadline) HEDDLE_EXCLUDES(mutex_);

 private:
  /// True if `message` is a Hello of allowed size or follows one; otherwise cancels the stream.
  bool IsNamed(ConnectionId id, const wire::FromWorker& message) HEDDLE_EXCLUDES(mutex_);
  void Erase(ConnectionId id) HEDDLE_EXCLUDES(mutex_);
  static void CancelAll(const std::vector<std::shared_ptr<ServerSession>>& sessions);

  mutable Mutex mutex_;
  CondVar changed_;
  ConnectionId next_ HEDDLE_GUARDED_BY(mutex_) = 1;
  std::map<ConnectionId, std::shared_ptr<ServerSession>> sessions_ HEDDLE_GUARDED_BY(mutex_);
  /// The names in the certificates.
  std::map<ConnectionId, std::string> workers_ HEDDLE_GUARDED_BY(mutex_);
  /// The streams without a Hello, and by when it has to arrive.
  std::map<ConnectionId, Deadline> unnamed_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::elastic
