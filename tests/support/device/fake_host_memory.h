/// \file
/// The host's memory as a fake device sees it: buffers of its own, which serve again, ranges that
/// were registered with it, and the copies that are under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/mutex.h"
#include "engine/graph/graph.h"

namespace heddle::runtime::testing {

/// Thread: any.
class FakeHostMemory : public std::enable_shared_from_this<FakeHostMemory> {
 public:
  /// A poisoned buffer in ordinary memory.
  at::Tensor Buffer(const graph::TensorType& type);
  /// The registration of `memory`, which ends when nobody refers to it.
  std::shared_ptr<void> Register(std::span<std::byte> memory);

  enum class Access : uint8_t { kRead, kWrite };
  struct Copy {
    std::span<const std::byte> memory;
    Access access = Access::kRead;
  };
  /// A copy is under way until nobody refers to the result.
  std::shared_ptr<void> Begin(const Copy& copy);

  /// How many ranges are registered.
  int64_t registered() const;
  /// How many copies there were of memory that is neither registered nor the device's own. They are
  /// allowed, and slow on a card.
  int64_t pageable_copies() const;
  /// What users of the memory did that they must not do, a line each.
  std::vector<std::string> violations() const;

 private:
  using Ranges = std::map<const std::byte*, size_t>;  ///< Bytes by their begin.

  void Give(std::vector<std::byte> memory) HEDDLE_EXCLUDES(mutex_);
  void End(std::list<Copy>::iterator copy) HEDDLE_EXCLUDES(mutex_);
  void Unregister(std::span<std::byte> memory) HEDDLE_EXCLUDES(mutex_);
  /// Whether a copy uses some of `memory`, as its reader only if `also_read`.
  bool IsUsed(std::span<const std::byte> memory, bool also_read) const HEDDLE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<size_t, std::vector<std::vector<std::byte>>> free_ HEDDLE_GUARDED_BY(mutex_);
  Ranges buffers_ HEDDLE_GUARDED_BY(mutex_);  ///< Those in use.
  Ranges registered_ HEDDLE_GUARDED_BY(mutex_);
  std::list<Copy> copies_ HEDDLE_GUARDED_BY(mutex_);  ///< Under way.
  int64_t pageable_copies_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> violations_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::runtime::testing
