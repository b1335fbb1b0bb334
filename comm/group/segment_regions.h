/// \file
/// The members' buffers in shared memory (Endpoint::AllocateShared) as one group of a host knows
/// them: which of its own the others have mapped, and where theirs lie here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

/// Where a member's data lies when it brings shared memory of its own; travels in
/// SegmentLine::data.
struct SegmentPlace {
  uint64_t region = 0;  ///< 0: private memory.
  uint64_t offset = 0;
  uint64_t fresh = 0;  ///< 1: the region's descriptor was sent just now.
};

/// Thread: any.
class MemberRegions {
 public:
  explicit MemberRegions(int members);

  /// What the next call is to say of an own region.
  enum class Offer : uint8_t {
    kNew,         ///< Its descriptor goes to the others with the call.
    kHandedOver,  ///< They have its descriptor; the call that was to map it went elsewhere.
    kUsable,
    kRefused,  ///< It is copied through the segment; also while another call offers it.
  };
  /// kNew and kHandedOver: the caller's call offers it, and ends with Settle or Withdraw.
  Offer OfferOwn(uint64_t region) HEDDLE_EXCLUDES(mutex_);
  /// The call went elsewhere, and nobody has mapped what it offered.
  void Withdraw(uint64_t region, bool handed_over) HEDDLE_EXCLUDES(mutex_);

  /// What `member` offers, mapped here; none: it cannot be.
  void Add(int member, uint64_t region, std::optional<Mapping> mapping) HEDDLE_EXCLUDES(mutex_);
  /// Whether all members have mapped what the call offered: places[i] is member i's.
  void Settle(int own, std::span<const SegmentPlace> places, bool usable) HEDDLE_EXCLUDES(mutex_);

  bool IsUsable(uint64_t own_region) const HEDDLE_EXCLUDES(mutex_);
  /// Of another member; null: nobody uses it. Errors: kDataLoss (memory that was never offered, or
  /// a place outside of it).
  Result<std::byte*> Find(int member, const SegmentPlace& place, size_t bytes) const
      HEDDLE_EXCLUDES(mutex_);

 private:
  /// A member's shared memory, mapped here.
  struct Foreign {
    Mapping mapping;
    bool usable = false;
  };

  mutable Mutex mutex_;
  /// Own regions; kNew: a call in flight offers it.
  std::map<uint64_t, Offer> own_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::map<uint64_t, Foreign>> foreign_ HEDDLE_GUARDED_BY(mutex_);  ///< By position.
};

}  // namespace heddle::comm
