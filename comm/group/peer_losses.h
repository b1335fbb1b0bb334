/// \file
/// Peers that a group lost, on their way to the one who listens.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/stream/event_loop.h"

namespace heddle::comm {

/// Thread: any.
class PeerLosses : public std::enable_shared_from_this<PeerLosses> {
 public:
  using Handler = std::function<void(int peer, const Status& reason)>;

  explicit PeerLosses(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}

  void Add(int peer, const Status& reason) HEDDLE_EXCLUDES(mutex_);
  /// Calls the handler, if there is one, with what it has not heard of.
  void Deliver() HEDDLE_EXCLUDES(mutex_, handler_mutex_);

  /// It is called by the loop or by who finds a loss, also for what was lost before.
  void SetHandler(Handler handler) HEDDLE_EXCLUDES(mutex_, handler_mutex_);
  /// Waits for a handler that runs at this moment; none is called afterwards.
  void DropHandler() HEDDLE_EXCLUDES(mutex_, handler_mutex_);

 private:
  const std::shared_ptr<EventLoop> loop_;

  /// Held while the handler runs, so that dropping it waits; taken before mutex_.
  Mutex handler_mutex_;
  Handler handler_ HEDDLE_GUARDED_BY(handler_mutex_);

  Mutex mutex_;
  std::vector<std::pair<int, Status>> losses_ HEDDLE_GUARDED_BY(mutex_);  ///< Not yet delivered.
};

}  // namespace heddle::comm
