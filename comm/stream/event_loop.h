/// \file
/// One epoll thread a worker: it accepts, shakes hands, moves messages and watches peers.
/// Everything that is called back runs on its thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "base/thread.h"

namespace heddle::comm {

/// Thread: any, but Stop must not be called from a callback.
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t events)>;

  /// Errors: kResourceExhausted (no descriptors left).
  static Result<std::shared_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Watches `fd` (level triggered) until Remove; `events` are epoll's. `first`: of what is ready
  /// at one time, this is called back before what is not first. Returns the watch's number, never
  /// 0.
  uint64_t Add(int fd, uint32_t events, Handler handler, bool first = false)
      HEDDLE_EXCLUDES(mutex_);
  void Modify(uint64_t watch, int fd, uint32_t events);
  /// To be called before `fd` is closed. A callback that runs at this moment may still finish.
  void Remove(uint64_t watch, int fd) HEDDLE_EXCLUDES(mutex_);

  /// Runs `function` on the loop thread soon, or at `time`; dropped when the loop stops first.
  void Post(std::function<void()> function) HEDDLE_EXCLUDES(mutex_);
  void RunAt(Time time, std::function<void()> function) HEDDLE_EXCLUDES(mutex_);

  bool OnLoopThread() const { return std::this_thread::get_id() == thread_id_.load(); }

  /// Ends the thread and drops every callback. Idempotent.
  void Stop() HEDDLE_EXCLUDES(mutex_);

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void Run();
  void Call(uint64_t watch, uint32_t events) HEDDLE_EXCLUDES(mutex_);
  /// Runs what is due; returns when the next timer is.
  Time RunDue();
  void Wake();

  const UniqueFd epoll_;
  const UniqueFd wake_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::thread::id> thread_id_;
  Thread thread_;

  Mutex mutex_;
  uint64_t next_watch_ HEDDLE_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Handler>> handlers_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> posted_ HEDDLE_GUARDED_BY(mutex_);
  std::multimap<Time, std::function<void()>> timers_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
