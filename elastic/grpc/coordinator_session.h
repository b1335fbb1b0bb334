/// \file
/// A worker's way to the coordinator: a stream that reconnects by itself, and finds the one of
/// several coordinators that leads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

struct SessionOptions {
  /// HOST:PORT, or several with commas between: they are tried in turn, and one that stands by
  /// names the leader, who is tried next.
  std::string coordinator;
  /// Folder of this worker's certificate (ReadCredentials), read anew for every attempt, so that a
  /// renewed one counts from the next on; empty: no TLS.
  std::string certificates;
  Duration backoff = std::chrono::milliseconds(50);  ///< Before the first new attempt; doubles …
  Duration max_backoff = std::chrono::milliseconds(1000);  ///< … up to this; jittered by a half.
  uint64_t seed = 0;                                       ///< Of the jitter.
  /// Called in order from one thread; must not block. A message belongs to the last `up`.
  std::function<void()> up;
  std::function<void(const std::string& reason)> down;  ///< Also after a failed first attempt.
  /// Also, before `down`, what certificates do not allow, as a Refused: for good, and then no
  /// attempt follows, but not for a worker that the coordinator has spoken to: it may be given a
  /// new certificate.
  std::function<void(const wire::ToWorker& message)> received;
};

/// A worker's stream. Thread: any.
class CoordinatorSession {
 public:
  explicit CoordinatorSession(SessionOptions options);
  ~CoordinatorSession();  ///< Close(): no callback comes afterwards.
  CoordinatorSession(const CoordinatorSession&) = delete;
  CoordinatorSession& operator=(const CoordinatorSession&) = delete;

  /// Queues a message for the stream that is up; dropped when none is: the protocol says again what
  /// matters after a reconnect. Never blocks.
  void Send(const wire::FromWorker& message);
  /// Another certificate is in the folder: a stream with it is begun beside the one that is up, and
  /// takes its place when it is up, too. Never blocks.
  void Refresh();
  /// Sends what is queued (bounded by `deadline`), then ends; idempotent. Not from a callback.
  void Close(Deadline deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
