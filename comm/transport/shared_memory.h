/// \file
/// Anonymous memory that processes of one host share, and the registry of the buffers of
/// Endpoint::AllocateShared. Memory is handed over as a descriptor and has no name, so that a
/// killed process leaves nothing behind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "comm/communicator.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// Creates a memory file of `bytes`. Its pages are allocated and its size is sealed, so that later
/// accesses cannot raise a signal because the machine is out of memory or a peer truncates it.
/// Errors: kResourceExhausted, with the requested size.
Result<UniqueFd> MakeSharedMemory(size_t bytes);

/// Size in bytes of a memory file that a peer handed over. Errors: kDataLoss (no memory file, not
/// sealed, or smaller than `least`).
Result<size_t> CheckSharedMemory(int fd, size_t least);

/// A shared mapping of a whole memory file. Movable.
class Mapping {
 public:
  Mapping() = default;
  /// Maps `bytes` bytes of `fd`. `touch`: also maps every page now, so that the first pass over it
  /// has no page faults.
  static Result<Mapping> Of(int fd, size_t bytes, bool touch);
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

/// A reference to a region beside its mapping, such as an RDMA registration. Thread: any.
class RegionUse {
 public:
  virtual ~RegionUse() = default;
  RegionUse() = default;
  RegionUse(const RegionUse&) = delete;
  RegionUse& operator=(const RegionUse&) = delete;
  /// Ends the use, because the region's memory is about to be freed. Idempotent.
  virtual void End() = 0;
};

/// A buffer that peers on this host may map, or memory of a device that RDMA devices access.
struct SharedRegion {
  uint64_t id = 0;  ///< Unique within the endpoint; never 0 and never reused.
  UniqueFd memory;  ///< A memory file, or the device's dma-buf.
  Mapping mapping;  ///< Empty: a device's memory.
  std::span<std::byte> device_bytes = {};  ///< Device's addresses, which the host does not access.
  uint64_t device_offset = 0;              ///< Where `device_bytes` begin in `memory`.

  bool in_device() const { return !device_bytes.empty(); }
  std::span<std::byte> bytes() const {
    return in_device() ? device_bytes : std::span(mapping.base(), mapping.bytes());
  }

  /// Registers `use`, which is ended before the memory is freed. Thread: any.
  void AddUse(std::weak_ptr<RegionUse> use) const HEDDLE_EXCLUDES(mutex);
  /// Ends and removes all uses. Thread: any.
  void EndUses() const HEDDLE_EXCLUDES(mutex);

  mutable Mutex mutex;
  mutable std::vector<std::weak_ptr<RegionUse>> uses HEDDLE_GUARDED_BY(mutex);
};

/// The shared buffers of an endpoint, by address. Thread: any.
class SharedRegions : public std::enable_shared_from_this<SharedRegions> {
 public:
  /// `metrics` outlives this; null: nothing is counted.
  explicit SharedRegions(metrics::Registry* metrics);

  /// Allocates a shared buffer. Errors: kInvalidArgument (0 bytes), kResourceExhausted.
  Result<SharedBuffer> Allocate(size_t bytes) HEDDLE_EXCLUDES(mutex_);
  /// Implements Endpoint::ImportDeviceMemory.
  Result<SharedBuffer> Import(const DeviceMemory& memory) HEDDLE_EXCLUDES(mutex_);
  /// The shared buffer that contains all of `bytes`; null: none, or a device's memory.
  std::shared_ptr<const SharedRegion> Find(std::span<const std::byte> bytes) const {
    auto region = FindAny(bytes);
    return region == nullptr || region->in_device() ? nullptr : region;
  }
  /// The same, or the device's memory.
  std::shared_ptr<const SharedRegion> FindAny(std::span<const std::byte> bytes) const
      HEDDLE_EXCLUDES(mutex_);
  /// Whether some of `bytes` is a device's memory, so that the host must not access it.
  bool TouchesDevice(std::span<const std::byte> bytes) const HEDDLE_EXCLUDES(mutex_);
  /// Replaces the pages of `bytes` of `region` by a private copy at the same address, which other
  /// processes that have mapped the region cannot access. From then on Find does not return the
  /// region. Errors: those of the system calls.
  Status Privatise(const SharedRegion& region, std::span<std::byte> bytes) HEDDLE_EXCLUDES(mutex_);
  /// Counts a region that could not be mapped or registered and whose data is copied instead.
  void CountRefused(StatusCode reason);

 private:
  metrics::Counter& Refused(StatusCode reason);
  using RegionPtr = std::shared_ptr<const SharedRegion>;
  /// The last region that begins before `end`; null: none.
  RegionPtr LastBefore(const std::byte* end) const HEDDLE_REQUIRES(mutex_);
  SharedBuffer Add(std::shared_ptr<SharedRegion> region, size_t bytes) HEDDLE_REQUIRES(mutex_);
  void Forget(const SharedRegion& region) HEDDLE_EXCLUDES(mutex_);

  metrics::Registry* const metrics_;
  mutable Mutex mutex_;
  std::atomic<bool> has_device_memory_ = false;  ///< Ever: what there is not need not be sought.
  uint64_t next_id_ HEDDLE_GUARDED_BY(mutex_) = 1;
  std::map<const std::byte*, std::weak_ptr<const SharedRegion>> by_base_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
