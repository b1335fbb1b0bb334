/// \file
/// A pool of scratch memory for collectives, kept from call to call. To allocate, map and zero it
/// for each call would take longer than the call's arithmetic.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace heddle::comm {

/// A pool of scratch memory. Thread: any.
class ScratchPool {
 public:
  struct Piece {
    std::unique_ptr<std::byte[]> memory;
    size_t room = 0;
  };

  /// Returns a piece of at least `bytes` bytes of unspecified content.
  Piece Take(size_t bytes) HEDDLE_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      const auto found = kept_.lower_bound(bytes);
      if (found != kept_.end() && found->first <= 2 * bytes + kPageBytes) {
        Piece piece{.memory = std::move(found->second), .room = found->first};
        kept_.erase(found);
        kept_bytes_ -= piece.room;
        return piece;
      }
    }
    const size_t room = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    return {.memory = std::make_unique_for_overwrite<std::byte[]>(room), .room = room};
  }

  void Return(Piece piece) HEDDLE_EXCLUDES(mutex_) {
    if (piece.room > kMaxKept) {
      return;
    }
    const MutexLock lock(mutex_);
    while (kept_bytes_ + piece.room > kMaxKept) {  // What was used last is wanted next.
      const auto largest = std::prev(kept_.end());
      kept_bytes_ -= largest->first;
      kept_.erase(largest);
    }
    kept_bytes_ += piece.room;
    kept_.emplace(piece.room, std::move(piece.memory));
  }

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kMaxKept = size_t{64} << 20;

  Mutex mutex_;
  std::multimap<size_t, std::unique_ptr<std::byte[]>> kept_ HEDDLE_GUARDED_BY(mutex_);
  size_t kept_bytes_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::comm
