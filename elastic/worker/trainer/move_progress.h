/// \file
/// How much of the state that a worker is to get has come.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::elastic {

/// Thread: one writes, any read.
class MoveProgress {
 public:
  /// `bytes`: of all that is to come. Zero: no move is under way.
  void Begin(int64_t bytes) {
    moved_.store(0, std::memory_order_relaxed);
    total_.store(bytes, std::memory_order_relaxed);
  }
  void Add(int64_t bytes) { moved_.fetch_add(bytes, std::memory_order_relaxed); }
  int64_t moved() const { return moved_.load(std::memory_order_relaxed); }
  int64_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> moved_ = 0;
  std::atomic<int64_t> total_ = 0;
};

}  // namespace heddle::elastic
