/// \file
/// A mutex that Clang's thread-safety analysis understands, its scoped lock, and a condition
/// variable whose every wait has a bound.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define HEDDLE_ATTRIBUTE(x) __attribute__((x))
#else
#define HEDDLE_ATTRIBUTE(x)
#endif
#define HEDDLE_GUARDED_BY(x) HEDDLE_ATTRIBUTE(guarded_by(x))
#define HEDDLE_REQUIRES(...) HEDDLE_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define HEDDLE_EXCLUDES(...) HEDDLE_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace heddle {

class HEDDLE_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void Lock() HEDDLE_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void Unlock() HEDDLE_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class HEDDLE_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HEDDLE_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() HEDDLE_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable. Waits may wake spuriously, so callers loop on their condition.
class CondVar {
 public:
  /// Waits until notified or `deadline`; false: the deadline passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      HEDDLE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool notified = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace heddle
