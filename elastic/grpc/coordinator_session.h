/// \file
/// A worker's way to the coordinator: a stream that reconnects by itself.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

struct SessionOptions {
  std::string coordinator;                           ///< HOST:PORT.
  Duration backoff = std::chrono::milliseconds(50);  ///< Before the first new attempt; doubles …
  Duration max_backoff = std::chrono::milliseconds(1000);  ///< … up to this; jittered by a half.
  uint64_t seed = 0;                                       ///< Of the jitter.
  /// Called in order from one thread; must not block. A message belongs to the last `up`.
  std::function<void()> up;
  std::function<void(const std::string& reason)> down;  ///< Also after a failed first attempt.
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
  /// Sends what is queued (bounded by `deadline`), then ends; idempotent. Not from a callback.
  void Close(Deadline deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
