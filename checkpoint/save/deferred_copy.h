/// \file
/// A copy of memory whose owner goes on working: threads copy it in the background, and a thread
/// that is about to change a part of it first makes sure that this part is in the copy (copy on
/// write). So the copy holds what the memory held when it began, and the owner waits only where it
/// is faster than the copying.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace heddle::checkpoint {

/// A copy on write in the background. Thread: any; no other call may run during Begin.
class DeferredCopy {
 public:
  struct Piece {
    std::span<const std::byte> from;
    std::byte* to = nullptr;  ///< Memory of the same size that overlaps no other.
  };

  /// `in_block` is called for each block before it is read, by the thread that reads it: for tests.
  explicit DeferredCopy(std::function<void()> in_block = {}) : in_block_(std::move(in_block)) {}
  DeferredCopy(const DeferredCopy&) = delete;
  DeferredCopy& operator=(const DeferredCopy&) = delete;

  /// Begins a copy; no piece is copied yet. From now on `from` of the pieces must not change until
  /// Secure has returned for it, or active() is false. Precondition: not active.
  void Begin(const std::vector<Piece>& pieces);
  /// Copies, beside other threads, until every piece is copied or the copy is cancelled: pieces in
  /// their order, by blocks.
  void Finish();
  /// Returns once no thread reads `memory` any more: copies the blocks that no thread has begun,
  /// and waits for the one block that each other thread may be copying.
  void Secure(std::span<const std::byte> memory);
  /// Leaves the rest uncopied. Returns once no thread reads the pieces any more.
  void Cancel();
  /// Whether pieces are still to be read. Cost: one load.
  bool active() const { return active_.load(std::memory_order_acquire); }

 private:
  struct Entry {
    Piece piece;
    size_t taken = 0;   ///< Bytes of blocks that were given out.
    size_t copied = 0;  ///< Bytes of blocks that were copied.
  };
  /// A block, which one thread copies at a time.
  struct Block {
    size_t entry = 0;
    size_t at = 0;
    size_t bytes = 0;
    Piece piece;
  };

  std::vector<size_t> Overlapping(std::span<const std::byte> memory) const HEDDLE_EXCLUDES(mutex_);
  /// Takes the next block of an entry; false: none is left.
  bool Take(size_t entry, Block& block) HEDDLE_EXCLUDES(mutex_);
  void Copy(const Block& block) HEDDLE_EXCLUDES(mutex_);
  void CopyAll(const std::vector<size_t>& entries) HEDDLE_EXCLUDES(mutex_);
  bool IsQuiet(const Entry& entry) const HEDDLE_REQUIRES(mutex_);

  const std::function<void()> in_block_;
  std::atomic<bool> active_ = false;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Entry> entries_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<size_t> by_address_ HEDDLE_GUARDED_BY(mutex_);  ///< Entries by where they begin.
  /// reach_[i]: the furthest end of by_address_[0 … i].
  std::vector<const std::byte*> reach_ HEDDLE_GUARDED_BY(mutex_);
  size_t left_ HEDDLE_GUARDED_BY(mutex_) = 0;     ///< Bytes not copied yet.
  size_t reading_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Bytes of blocks that are being copied.
  bool cancelled_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::checkpoint
