/// \file
/// The coordinator's ends of workers' streams. Included by the server only.
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

/// One stream. Thread: any.
class ServerSession {
 public:
  virtual ~ServerSession() = default;
  /// The next message is read after this only.
  virtual void ReadMore() = 0;
  virtual void Send(const wire::ToWorker& message) = 0;
  /// Ends the stream after what was sent before.
  virtual void Close() = 0;
  /// Ends it now.
  virtual void Cancel() = 0;
  /// Ends it now, and says why; for a stream of which a message is being handled.
  virtual void Refuse(const Status& status) = 0;
};

/// The streams that are open. Thread: any.
class ServerSessions {
 public:
  using Reactor = grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker>;
  /// Called from gRPC's threads.
  using OnMessage = std::function<void(ConnectionId, wire::FromWorker)>;
  /// The last call: the stream has ended, and Find does not find it.
  using OnClosed = std::function<void(ConnectionId)>;

  /// Begins a stream. It calls back until it has ended, which this outlives. A stream is given up
  /// whose first message is no Hello, or comes after seconds only; too many that have not said it
  /// yet, too.
  /// `worker`: whose certificate it shows; empty: none's.
  Reactor* Open(grpc::CallbackServerContext* context,
                const std::string& worker,
                OnMessage on_message,
                OnClosed on_closed) HEDDLE_EXCLUDES(mutex_);
  /// Ends the streams of a worker's certificates.
  void CancelOf(const std::string& worker) HEDDLE_EXCLUDES(mutex_);
  /// Gives up the streams that are late with their Hello.
  void CancelUnnamed(Time now) HEDDLE_EXCLUDES(mutex_);
  /// Null: it has ended.
  std::shared_ptr<ServerSession> Find(ConnectionId id) const HEDDLE_EXCLUDES(mutex_);
  /// Whether all have ended by then.
  bool WaitUntilNone(Deadline deadline) HEDDLE_EXCLUDES(mutex_);

 private:
  /// Whether the stream has said Hello, by this message at the latest, and none that is too long.
  bool IsNamed(ConnectionId id, const wire::FromWorker& message) HEDDLE_EXCLUDES(mutex_);
  void Erase(ConnectionId id) HEDDLE_EXCLUDES(mutex_);
  static void CancelAll(const std::vector<std::shared_ptr<ServerSession>>& sessions);

  mutable Mutex mutex_;
  CondVar changed_;
  ConnectionId next_ HEDDLE_GUARDED_BY(mutex_) = 1;
  std::map<ConnectionId, std::shared_ptr<ServerSession>> sessions_ HEDDLE_GUARDED_BY(mutex_);
  std::map<ConnectionId, std::string> workers_ HEDDLE_GUARDED_BY(mutex_);
  /// Without a Hello yet: how long that is waited for.
  std::map<ConnectionId, Deadline> unnamed_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::elastic
