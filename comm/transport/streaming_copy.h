/// \file
/// Copies to memory that another core reads next, or that nobody reads soon.
///
/// A store to a line that another core has read waits until it has given the line up. Where the two
/// cores share a cache, that is quick. Where they do not, memory that both use is written at 2.5 to
/// 5 GB/s with ordinary stores and at 50 GB/s with streaming ones, which pass the caches by (EPYC);
/// but then its reader fetches from memory what a shared cache would have held. So the rate of the
/// ordinary stores decides (docs/measured/comm.md).
#pragma once

#include <atomic>
#include <cstddef>

#include "base/clock.h"

namespace heddle::comm {

/// Which stores suit the memory that this process shares with others, from the time that copies
/// with ordinary ones took. Thread-safe. Threads may lose each other's votes: each is one of many.
class StoreChoice {
 public:
  /// Whether the next copy should stream. Now and then an ordinary copy measures again.
  bool Streams() {
    return votes_.load(std::memory_order_relaxed) >= kSlow &&
           copies_.fetch_add(1, std::memory_order_relaxed) % kMeasureEvery != 0;
  }
  /// Whether copies stream at present, without a turn of the measurements.
  bool streams() const { return votes_.load(std::memory_order_relaxed) >= kSlow; }
  /// A copy of so many bytes with ordinary stores took this long.
  void Record(size_t bytes, Duration took);

 private:
  static constexpr int kSlow = 4;
  static constexpr int kMostVotes = 8;
  static constexpr unsigned kMeasureEvery = 16;

  std::atomic<int> votes_{0};  ///< Slow copies count one, quick ones minus two; 0 to kMostVotes.
  std::atomic<unsigned> copies_{0};
};

/// memcpy with streaming stores, on processors that have them; less than a page is copied as ever.
/// What was copied is there for whoever sees a store that follows the call.
void CopyStreaming(std::byte* to, const std::byte* from, size_t bytes);

/// Copies into memory that another process reads next, with the stores that suit this machine.
void CopyToStage(std::byte* to, const std::byte* from, size_t bytes);

/// Copies a part of a result of `whole` bytes, streaming where stages are streamed: a small one is
/// left in the core's cache for its reader.
void CopyResult(std::byte* to, const std::byte* from, size_t bytes, size_t whole);

}  // namespace heddle::comm
