/// \file
/// Whoever waits for a message of a group moves the group's messages itself: it reads and writes
/// the connections of all members with whom something is in flight, and sleeps on their sockets, so
/// that no message takes a hop between threads (the leader of a leader/followers pattern, Schmidt
/// et al. 2000). Meanwhile, and for a moment after if nobody else waits, the event loop leaves
/// those connections alone; it still sees ends, and takes over what nobody waits for.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "comm/message/work.h"

namespace heddle::comm {

class Channel;

/// Thread: any; one caller drives at a time, the others sleep until their operations end.
class Driver {
 public:
  void Add(const std::shared_ptr<Channel>& channel) HEDDLE_EXCLUDES(mutex_);
  /// Until `operation` is done or `deadline`; may return earlier: the event loop goes on then.
  void Drive(const Work::State& operation, Patience patience, Deadline deadline)
      HEDDLE_EXCLUDES(mutex_);
  /// A wait sleeps that does not drive, or no longer.
  void SetAsleep(bool asleep) { asleep_.fetch_add(asleep ? 1 : -1); }

 private:
  std::atomic<bool> driving_ = false;
  std::atomic<int> asleep_ = 0;
  Mutex mutex_;
  std::vector<std::weak_ptr<Channel>> channels_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
