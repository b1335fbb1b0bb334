/// \file
/// One stream of a worker to its coordinator; a session makes them one after the other. Included by
/// coordinator_session.cc only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <variant>

#include "base/mutex.h"
#include "base/status.h"
#include "elastic/identity/credentials.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// The coordinator has accepted the stream.
struct StreamIsUp {};
/// The stream has ended.
struct StreamEnded {
  Status status;            ///< Why it ended; never OK.
  bool stands_by = false;   ///< The coordinator is a standby and takes no workers.
  std::string leader = {};  ///< HOST:PORT of the leader that a standby names; empty: unknown.
};
/// A change of the stream, or a message from the coordinator.
using StreamEvent = std::variant<StreamIsUp, StreamEnded, wire::ToWorker>;
/// An event with the stream that it is from.
struct PostedEvent {
  int64_t from = 0;  ///< The stream's number.
  StreamEvent event;
};

/// The events that the streams of a session post for the session's thread. Thread: any.
struct SessionInbox {
  Mutex mutex;
  CondVar wake;
  std::deque<PostedEvent> events HEDDLE_GUARDED_BY(mutex);
  bool closed HEDDLE_GUARDED_BY(mutex) = false;

  void Post(int64_t from, StreamEvent event) {
    const MutexLock lock(mutex);
    events.push_back({.from = from, .event = std::move(event)});
    wake.NotifyAll();
  }
};

/// One stream; its last event is StreamEnded. Thread: any.
class SessionStream {
 public:
  virtual ~SessionStream() = default;
  /// Queues a message. Never blocks; a stream with kMaxQueuedMessages waiting is cancelled.
  virtual void Send(const wire::FromWorker& message) = 0;
  /// Reads the next message; without this call only the first one is read.
  virtual void ReadMore() = 0;
  /// Ends the stream once every queued message is written.
  virtual void EndWrites() = 0;
  /// Ends the stream now.
  virtual void Cancel() = 0;
};

/// Begins a stream to `coordinator` (HOST:PORT) whose events have `number`. The stream holds itself
/// until it has ended, also after the returned pointer is gone.
std::shared_ptr<SessionStream> BeginStream(int64_t number,
                                           const std::string& coordinator,
                                           const Credentials& credentials,
                                           std::shared_ptr<SessionInbox> inbox);

}  // namespace heddle::elastic
