/// \file
/// The progress of the tasks of a save: they are taken by threads in order, encoded in any order
/// and written in order. A task has a slot for its encoded chunk, which it shares with the tasks at
/// distances that are multiples of kSlots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::checkpoint {

/// The window of tasks in progress. Thread: guarded by its owner's mutex.
class EncodeWindow {
 public:
  /// The most encoded chunks that wait for the disk; bounds memory and how far threads run ahead.
  static constexpr int64_t kSlots = 16;
  static size_t SlotOf(int64_t task) { return static_cast<size_t>(task % kSlots); }

  /// Begins a save of `tasks` tasks. Precondition: IsIdle().
  void Begin(int64_t tasks);
  bool CanTake() const { return next_ < tasks_ && next_ < written_ + kSlots; }
  /// Takes the next task, which belongs to the caller until Encoded. Precondition: CanTake().
  int64_t Take();
  void Encoded(int64_t task);
  /// Whether the encoded task waits in its slot to be written.
  bool IsReady(int64_t task) const { return ready_[SlotOf(task)]; }
  /// Frees the slot of a written task for the task kSlots later.
  void Written(int64_t task);

  bool AllEncoded() const { return encoded_ == tasks_; }
  /// Whether no thread is encoding a task.
  bool IsIdle() const { return active_ == 0; }

 private:
  int64_t tasks_ = 0;
  int64_t next_ = 0;     ///< First task that no thread has taken.
  int64_t encoded_ = 0;  ///< Number of encoded tasks.
  int64_t written_ = 0;  ///< Number of written tasks.
  int64_t active_ = 0;   ///< Threads between Take and Encoded.
  std::array<bool, kSlots> ready_ = {};
};

}  // namespace heddle::checkpoint
