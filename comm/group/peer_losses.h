/// \file
/// A queue of peer losses between the group that detects them and the registered handler.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/stream/event_loop.h"

namespace heddle::comm {

/// The queue of a group's peer losses. Thread: any.
class PeerLosses : public std::enable_shared_from_this<PeerLosses> {
 public:
  using Handler = std::function<void(int peer, const Status& reason)>;

  explicit PeerLosses(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}

  void Add(int peer, const Status& reason) HEDDLE_EXCLUDES(mutex_);
  /// Calls the handler, if there is one, for each loss not delivered yet.
  void Deliver() HEDDLE_EXCLUDES(mutex_, handler_mutex_);

  /// Sets the handler. The event loop calls it for earlier losses; Deliver calls it for later ones.
  void SetHandler(Handler handler) HEDDLE_EXCLUDES(mutex_, handler_mutex_);
  /// Removes the handler. Waits for a call of it that is running; none begins afterwards.
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
