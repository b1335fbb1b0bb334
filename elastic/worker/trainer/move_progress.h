/// \file
/// How much of the state that a worker is to receive has arrived.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::elastic {

/// The progress of a move. Thread: one writes, any read.
class MoveProgress {
 public:
  /// Begins a move in which `bytes` are to arrive; 0: no move is under way.
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
