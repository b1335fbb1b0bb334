/// \file
/// Copies to memory that another core reads next, or that is not read soon.
///
/// A store to a cache line that another core has read waits until that core has released the line.
/// If the two cores share a cache, that is quick. If they do not, memory that both use is written
/// at 2.5 to 5 GB/s with ordinary stores and at 50 GB/s with streaming (non-temporal) stores, which
/// bypass the caches (EPYC); but then its reader fetches from memory what a shared cache would have
/// held. So the measured rate of ordinary stores decides (docs/measured/comm.md).
#pragma once

#include <atomic>
#include <cstddef>

#include "base/clock.h"

namespace heddle::comm {

/// Chooses the stores for memory that this process shares with others, by the time that copies with
/// ordinary stores took. Thread: any. Concurrent votes may be lost; each is one of many.
class StoreChoice {
 public:
  /// Whether the next copy should use streaming stores. Now and then it returns false, so that an
  /// ordinary copy is measured again.
  bool Streams() {
    return votes_.load(std::memory_order_relaxed) >= kSlow &&
           copies_.fetch_add(1, std::memory_order_relaxed) % kMeasureEvery != 0;
  }
  /// Whether streaming stores are chosen at present; does not affect the measurements.
  bool streams() const { return votes_.load(std::memory_order_relaxed) >= kSlow; }
  /// Records the time that a copy of `bytes` bytes with ordinary stores took.
  void Record(size_t bytes, Duration took);

 private:
  static constexpr int kSlow = 4;
  static constexpr int kMaxVotes = 8;
  static constexpr unsigned kMeasureEvery = 16;

  std::atomic<int> votes_{0};  ///< +1 for a slow copy, -2 for a quick one; 0 to kMaxVotes.
  std::atomic<unsigned> copies_{0};
};

/// memcpy with streaming stores, on processors that have them; less than a page is copied with
/// ordinary stores. A thread that sees a store after the call sees the copy, too.
void CopyStreaming(std::byte* to, const std::byte* from, size_t bytes);

/// Copies into memory that another process reads next, with the stores chosen for this machine.
void CopyToStage(std::byte* to, const std::byte* from, size_t bytes);

/// Copies a part of a result of `whole` bytes. It uses streaming stores if CopyToStage does, unless
/// the result is small and is to stay in the core's cache for its reader.
void CopyResult(std::byte* to, const std::byte* from, size_t bytes, size_t whole);

}  // namespace heddle::comm
