/// \file
/// Memory of the host that is locked in its place, so that the card copies from and to it beside
/// its compute. Locking takes about a third of a millisecond a MiB, so memory stays with the pool.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace heddle::runtime::cuda {

/// Thread: any.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  PinnedPool() = default;
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Returns memory of at least `bytes`, which serves again when nobody refers to it; null: there is
  /// none. Precondition: the card is that of the calling thread.
  std::shared_ptr<void> Take(size_t bytes) HEDDLE_EXCLUDES(mutex_);

 private:
  void Give(void* memory, size_t bytes) HEDDLE_EXCLUDES(mutex_);

  Mutex mutex_;
  std::map<size_t, std::vector<void*>> free_ HEDDLE_GUARDED_BY(mutex_);  ///< By size.
};

/// Locks memory of others in its place for the card `ordinal`, as Device::RegisterHost does; about
/// 0.08 ms a MiB. Errors: kResourceExhausted. Thread: any.
Result<std::shared_ptr<void>> LockInPlace(int ordinal, std::span<std::byte> memory);

/// True if a card copies from and to the memory at `address` without help of the host.
bool IsPinned(const void* address);

}  // namespace heddle::runtime::cuda
