/// \file
/// Anonymous memory that processes of one host share: made here, handed over as a descriptor,
/// without a name, so that nothing is left behind by a killed process; and the registry of the
/// buffers that Endpoint::AllocateShared gave out.
#pragma once

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

/// A memory file of `bytes`, allocated and sealed against a change of its size, so that neither a
/// full machine nor a peer turns an access into a signal later. Errors: kResourceExhausted with the
/// size that was asked for.
Result<UniqueFd> MakeSharedMemory(size_t bytes);

/// Bytes of a memory file that a peer handed over. Errors: kDataLoss when it is no memory file, not
/// sealed or smaller than `least`.
Result<size_t> CheckSharedMemory(int fd, size_t least);

/// A shared mapping of a whole memory file. Movable.
class Mapping {
 public:
  Mapping() = default;
  /// `touch`: maps every page now, so that the first pass over it has no page faults.
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

/// What refers to a region beside its mapping: an RDMA registration. Thread: any.
class RegionUse {
 public:
  virtual ~RegionUse() = default;
  RegionUse() = default;
  RegionUse(const RegionUse&) = delete;
  RegionUse& operator=(const RegionUse&) = delete;
  /// The region's memory goes. Idempotent.
  virtual void End() = 0;
};

/// A buffer that peers on this host may map.
struct SharedRegion {
  uint64_t id = 0;  ///< Unique in this process; never 0 and never used again.
  UniqueFd memory;
  Mapping mapping;

  /// `use` is ended before the memory goes back to the machine. Thread: any.
  void AddUse(std::weak_ptr<RegionUse> use) const HEDDLE_EXCLUDES(mutex);
  void EndUses() const HEDDLE_EXCLUDES(mutex);

  mutable Mutex mutex;
  mutable std::vector<std::weak_ptr<RegionUse>> uses HEDDLE_GUARDED_BY(mutex);
};

/// The shared buffers of an endpoint, by address. Thread: any.
class SharedRegions : public std::enable_shared_from_this<SharedRegions> {
 public:
  /// `metrics`: null counts nothing; else outlives this.
  explicit SharedRegions(metrics::Registry* metrics);

  /// Errors: kInvalidArgument (0 bytes), kResourceExhausted.
  Result<SharedBuffer> Allocate(size_t bytes) HEDDLE_EXCLUDES(mutex_);
  /// The region that holds all of `bytes`, or null.
  std::shared_ptr<const SharedRegion> Find(std::span<const std::byte> bytes) const
      HEDDLE_EXCLUDES(mutex_);
  /// Takes the pages around `bytes` of `region` away from whoever else has mapped them: a private
  /// copy takes their place at the same address. The region counts as ordinary memory from then on.
  Status Privatise(const SharedRegion& region, std::span<std::byte> bytes) HEDDLE_EXCLUDES(mutex_);
  /// Counts a peer's region that cannot be used here.
  void CountRefused(StatusCode reason);

 private:
  metrics::Counter& Refused(StatusCode reason);
  void Forget(const std::byte* base) HEDDLE_EXCLUDES(mutex_);

  metrics::Registry* const metrics_;
  mutable Mutex mutex_;
  uint64_t next_id_ HEDDLE_GUARDED_BY(mutex_) = 1;
  std::map<const std::byte*, std::weak_ptr<const SharedRegion>> by_base_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
