/// \file
/// Small reads of objects, joined: a request to a store takes as long as some MiB, so blocks are
/// read and kept for those who read what is near.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace heddle::s3 {

/// Memory: at most kSlots blocks. Thread: any; who wants a block that is being read waits for it.
class BlockCache {
 public:
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;
  /// Reads a range of the object from the store.
  using Fetch = std::function<Status(int64_t offset, std::span<std::byte> out)>;

  /// Fills `out` from `offset` of object number `object`, which never changes and has `bytes`; the
  /// range lies in it. Errors: those of `fetch`.
  Status Read(
      uint64_t object, int64_t bytes, int64_t offset, std::span<std::byte> out, const Fetch& fetch);

 private:
  static constexpr size_t kSlots = 16;
  struct Slot {
    Mutex mutex;
    uint64_t object HEDDLE_GUARDED_BY(mutex) = 0;
    int64_t block HEDDLE_GUARDED_BY(mutex) = -1;
    std::vector<std::byte> content HEDDLE_GUARDED_BY(mutex);
  };
  std::array<Slot, kSlots> slots_;
};

}  // namespace heddle::s3
