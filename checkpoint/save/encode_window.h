/// \file
/// How far the tasks of a save have come: taken by a thread in order, encoded in any order, written
/// in order. A task has a slot for what it encodes to, which it shares with those a window away.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::checkpoint {

/// Thread: guarded by its owner's mutex.
class EncodeWindow {
 public:
  /// Encoded chunks that may wait for the disk: bounds memory, and how far threads run ahead.
  static constexpr int64_t kSlots = 16;
  static size_t SlotOf(int64_t task) { return static_cast<size_t>(task % kSlots); }

  /// Precondition: IsIdle().
  void Begin(int64_t tasks);
  bool CanTake() const { return next_ < tasks_ && next_ < written_ + kSlots; }
  /// The task belongs to the caller until Encoded. Precondition: CanTake().
  int64_t Take();
  void Encoded(int64_t task);
  /// It waits in its slot to be written.
  bool IsReady(int64_t task) const { return ready_[SlotOf(task)]; }
  /// The slot is free for the task a window later.
  void Written(int64_t task);

  bool AllEncoded() const { return encoded_ == tasks_; }
  /// No thread is at a task.
  bool IsIdle() const { return active_ == 0; }

 private:
  int64_t tasks_ = 0;
  int64_t next_ = 0;     ///< First task that no thread has taken.
  int64_t encoded_ = 0;  ///< How many.
  int64_t written_ = 0;  ///< How many.
  int64_t active_ = 0;   ///< Threads between Take and Encoded.
  std::array<bool, kSlots> ready_ = {};
};

}  // namespace heddle::checkpoint
