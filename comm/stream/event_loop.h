/// \file
/// The epoll thread of an endpoint: it accepts connections, performs handshakes, moves messages and
/// watches peers. All callbacks run on its thread.
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

/// An epoll loop with its thread. Thread: any, but Stop must not be called from a callback.
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t events)>;

  /// Creates a loop and starts its thread. Errors: kResourceExhausted (no descriptors left).
  static Result<std::shared_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Watches `fd` (level triggered) for the epoll `events` until Remove. Of the descriptors that
  /// are ready at one time, those that are `first` are called back first. Returns the number of the
  /// watch, never 0.
  uint64_t Add(int fd, uint32_t events, Handler handler, bool first = false)
      HEDDLE_EXCLUDES(mutex_);
  void Modify(uint64_t watch, int fd, uint32_t events);
  /// Ends a watch. Must be called before `fd` is closed. A callback that is running may still
  /// finish.
  void Remove(uint64_t watch, int fd) HEDDLE_EXCLUDES(mutex_);

  /// Runs `function` on the loop thread soon; drops it if the loop stops first.
  void Post(std::function<void()> function) HEDDLE_EXCLUDES(mutex_);
  /// Runs `function` on the loop thread at `time`; drops it if the loop stops first.
  void RunAt(Time time, std::function<void()> function) HEDDLE_EXCLUDES(mutex_);

  bool OnLoopThread() const { return std::this_thread::get_id() == thread_id_.load(); }

  /// Ends the thread and drops every callback. Idempotent.
  void Stop() HEDDLE_EXCLUDES(mutex_);

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void Run();
  void Call(uint64_t watch, uint32_t events) HEDDLE_EXCLUDES(mutex_);
  /// Runs posted functions and timers that are due. Returns the time of the next timer.
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
