/// \file
/// The way to the coordinator: a worker's stream, which reconnects by itself, and the calls of the
/// command line.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
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

/// The calls of the command line; each is bounded by `timeout`. Thread: any.
/// Errors: kUnavailable (no coordinator there), kDeadlineExceeded, and the coordinator's own.
class CoordinatorClient {
 public:
  explicit CoordinatorClient(const std::string& coordinator,
                             Duration timeout = std::chrono::seconds(10));
  ~CoordinatorClient();

  /// Returns the job's id.
  Result<std::string> Submit(const std::string& yaml, const std::string& path);
  Result<wire::JobStatus> Status();
  /// `worker`: a name, or a host for all its workers. Returns the names.
  Result<std::vector<std::string>> Drain(const std::string& worker);
  struct EmulationChange {
    bool set_speed = false;
    bool set_memory = false;
    bool set_link = false;
    wire::Emulation emulation;
  };
  heddle::Status Emulate(const std::string& worker, const EmulationChange& change);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The status as one JSON object, with the names of the .proto; what `heddle status --json` prints.
std::string StatusToJson(const wire::JobStatus& status);

}  // namespace heddle::elastic
