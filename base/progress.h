/// \file
/// A counter of a thread's progress, by which others detect whether it still works.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle {

/// A counter of a thread's progress. Thread: any.
class Progress {
 public:
  void Note(int64_t amount = 1) { count_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t count() const { return count_.load(std::memory_order_relaxed); }
  /// Whether a thread that reports here is waiting for another process or for storage.
  bool waits() const { return waiting_.load(std::memory_order_relaxed) > 0; }

  /// Marks a wait for another process or for storage while it lives.
  class Wait {
   public:
    explicit Wait(Progress& progress) : progress_(progress) {
      progress_.waiting_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Wait() { progress_.waiting_.fetch_sub(1, std::memory_order_relaxed); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    Progress& progress_;
  };

 private:
  std::atomic<int64_t> count_ = 0;
  std::atomic<int> waiting_ = 0;
};

}  // namespace heddle
