/// \file
/// The state of members' shared buffers (Endpoint::AllocateShared) in one group of a host: which of
/// this member's regions the others have mapped, and where their regions are mapped here.
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

/// The place of a member's data in one of its own shared regions; sent in SegmentLine::data.
struct SegmentPlace {
  uint64_t region = 0;  ///< 0: private memory.
  uint64_t offset = 0;
  uint64_t fresh = 0;  ///< 1: the other members are to map the region during this call.
};

/// The shared regions of a group's members. Thread: any.
class MemberRegions {
 public:
  explicit MemberRegions(int members);

  /// The state of one of this member's regions when a call wants to use it.
  enum class Offer : uint8_t {
    kNew,         ///< The others get its descriptor with the call.
    kHandedOver,  ///< The others have its descriptor and have not mapped it.
    kUsable,      ///< The others have mapped it.
    kRefused,     ///< It is copied through the segment. Also while another call offers it.
  };
  /// Returns the state of a region of this member. After kNew and kHandedOver the caller's call
  /// offers the region to the others, and ends the offer with Settle or Withdraw.
  Offer OfferOwn(uint64_t region) HEDDLE_EXCLUDES(mutex_);
  /// Ends an offer that no member has mapped, because the call did not use the segment.
  /// `handed_over`: all members have the region's descriptor.
  void Withdraw(uint64_t region, bool handed_over) HEDDLE_EXCLUDES(mutex_);

  /// Adds the mapping of a region that `member` offers; nullopt: it could not be mapped.
  void Add(int member, uint64_t region, std::optional<Mapping> mapping) HEDDLE_EXCLUDES(mutex_);
  /// Ends a call's offers. `usable`: all members have mapped all offered regions. places[i] is the
  /// place of member i; `own` is this member's position.
  void Settle(int own, std::span<const SegmentPlace> places, bool usable) HEDDLE_EXCLUDES(mutex_);

  bool IsUsable(uint64_t own_region) const HEDDLE_EXCLUDES(mutex_);
  /// The address in this process of `bytes` bytes at `place` of another member; null: the region is
  /// not usable. Errors: kDataLoss (a region that was never offered, or bytes outside of it).
  Result<std::byte*> Find(int member, const SegmentPlace& place, size_t bytes) const
      HEDDLE_EXCLUDES(mutex_);

 private:
  /// A member's shared memory, mapped here.
  struct Foreign {
    Mapping mapping;
    bool usable = false;
  };

  mutable Mutex mutex_;
  /// This member's regions; kNew: a call in flight offers it.
  std::map<uint64_t, Offer> own_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::map<uint64_t, Foreign>> foreign_ HEDDLE_GUARDED_BY(mutex_);  ///< By position.
};

}  // namespace heddle::comm
