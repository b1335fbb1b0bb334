/// \file
/// A cache that joins small reads of objects. A request to a store takes as long as the transfer of
/// some MiB, so whole blocks are read and kept for reads nearby.
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

/// Keeps at most kSlots blocks. Thread: any; a read of a block that another thread is fetching
/// waits for it.
class BlockCache {
 public:
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;
  /// Reads a range of the object from the store.
  using Fetch = std::function<Status(int64_t offset, std::span<std::byte> out)>;

  /// Reads bytes from `offset` on of object number `object`, which never changes and has `bytes`
  /// bytes, into `out`. The range lies in the object. Errors: those of `fetch`.
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
