/// \file
/// One stream of a worker to its coordinator, of those that its session makes one after the other.
/// Included by coordinator_session.cc only.
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

struct StreamIsUp {};
struct StreamEnded {
  Status status;
  bool stands_by = false;   ///< Its coordinator takes no workers.
  std::string leader = {};  ///< Whom it names; empty: nobody.
};
using StreamEvent = std::variant<StreamIsUp, StreamEnded, wire::ToWorker>;
struct PostedEvent {
  int64_t from = 0;  ///< The stream's number.
  StreamEvent event;
};

/// What the streams of a session post and its thread takes. Thread: any.
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

/// One attempt; its last event is StreamEnded. Thread: any.
class SessionStream {
 public:
  virtual ~SessionStream() = default;
  virtual void Send(const wire::FromWorker& message) = 0;
  /// The next message is read after this only.
  virtual void ReadMore() = 0;
  /// Ends the stream once what is queued is written.
  virtual void EndWrites() = 0;
  /// Ends it now.
  virtual void Cancel() = 0;
};

/// Begins one of this number to HOST:PORT; it lives until it has ended, whoever else holds it.
std::shared_ptr<SessionStream> BeginStream(int64_t number,
                                           const std::string& coordinator,
                                           const Credentials& credentials,
                                           std::shared_ptr<SessionInbox> inbox);

}  // namespace heddle::elastic
