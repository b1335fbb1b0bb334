/// \file
/// A thread that waits for a message of a group drives the group's channels itself: it reads and
/// writes the connections of all members with operations in flight, and sleeps on their sockets, so
/// that no message takes a hop between threads (the leader of a leader/followers pattern, Schmidt
/// et al. 2000). Meanwhile, and for a moment after if no other thread waits, the event loop leaves
/// those connections alone. The loop still handles lost connections, and drives the channels while
/// no thread does.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "comm/message/work.h"

namespace heddle::comm {

class Channel;

/// The driver of a group's channels of one traffic class. Thread: any; one caller drives at a time,
/// the others sleep until their operations end.
class Driver {
 public:
  void Add(const std::shared_ptr<Channel>& channel) HEDDLE_EXCLUDES(mutex_);
  /// Drives the channels until `operation` is done or `deadline`. May return earlier; the event
  /// loop then goes on.
  void Drive(const Work::State& operation, Patience patience, Deadline deadline)
      HEDDLE_EXCLUDES(mutex_);
  /// Counts a wait that begins (`asleep`) or stops to sleep without driving.
  void SetAsleep(bool asleep) { asleep_.fetch_add(asleep ? 1 : -1); }

 private:
  std::atomic<bool> driving_ = false;
  std::atomic<int> asleep_ = 0;
  Mutex mutex_;
  std::vector<std::weak_ptr<Channel>> channels_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
