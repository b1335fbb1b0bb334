/// \file
/// A worker's session with the coordinator: a stream that reconnects by itself and finds the leader
/// among several coordinators.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

struct SessionOptions {
  /// HOST:PORT, or a list of them separated by commas. They are tried in turn; a standby names the
  /// leader, which is tried next.
  std::string coordinator;
  /// Folder of this worker's certificate (ReadCredentials), read again for every attempt, so that
  /// the next attempt uses a renewed certificate; empty: no TLS.
  std::string certificates;
  /// The wait before the first new attempt; it doubles with each failed one up to max_backoff. Each
  /// wait is shortened by a random factor between 0.5 and 1.
  Duration backoff = std::chrono::milliseconds(50);
  Duration max_backoff = std::chrono::milliseconds(1000);
  uint64_t seed = 0;  ///< Seed of the random waits.
  /// Called when a stream is up. `up`, `down` and `received` are called in order from one thread
  /// and must not block. A message of `received` belongs to the last `up`.
  std::function<void()> up;
  /// Called when a stream has ended, and for an attempt that failed.
  std::function<void(const std::string& reason)> down;
  /// Called for each message. A stream that ends with kUnauthenticated or kPermissionDenied is
  /// reported as a Refused before `down`. The Refused is permanent, and no attempt follows, if no
  /// coordinator has sent this session a message before; otherwise attempts go on, since the worker
  /// may be given a new certificate.
  std::function<void(const wire::ToWorker& message)> received;
};

/// A worker's session. Thread: any.
class CoordinatorSession {
 public:
  explicit CoordinatorSession(SessionOptions options);
  ~CoordinatorSession();  ///< Closes without waiting; no callback is called afterwards.
  CoordinatorSession(const CoordinatorSession&) = delete;
  CoordinatorSession& operator=(const CoordinatorSession&) = delete;

  /// Queues a message for the stream that is up, and drops it when none is: after a reconnect the
  /// protocol sends again what matters. Never blocks.
  void Send(const wire::FromWorker& message);
  /// Reconnects with the certificate that is in the folder now: the stream that is up stays until
  /// the new one is up and takes its place. Never blocks.
  void Refresh();
  /// Sends what is queued, until `deadline` at most, then ends the session; idempotent. Not to be
  /// called from a callback.
  void Close(Deadline deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
