/// \file
/// A collective in a group's segment: what its member brings, where the others' lies, and what was
/// moved.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "comm/group/segment_slot.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

/// By member.
using SegmentPlaces = std::array<std::byte*, kMostSharing>;
using SegmentSizes = std::array<size_t, kMostSharing>;

/// One collective of this member. Thread: one.
class SegmentCall : public SegmentSlot {
 public:
  using SegmentSlot::SegmentSlot;

  /// Announces this call with `data` (at most small_bytes), or with where `bulk` lies, and waits
  /// until all members have announced it. False: the segment is full of other calls, and all
  /// members exchange messages for this one. Errors: those of CallWaits::Look when the members
  /// disagree in `shape`, or one is in another call; those of Communicator.
  Result<bool> EnterSmall(uint64_t shape, std::span<const std::byte> data);
  /// places[i]: where the bulk of member i, who brings sizes[i] bytes, lies here; null for private
  /// memory. All members come to the same answer. Further errors: kDataLoss (a place outside of its
  /// region).
  Result<bool> EnterBulk(uint64_t shape,
                         std::span<const std::byte> bulk,
                         std::span<const size_t> sizes,
                         std::span<std::byte*> places);

  /// What a member announced with EnterSmall. Valid until this call ends.
  const std::byte* SmallData(int member) const;
  /// One of a member's two bulk stages.
  std::byte* Stage(int member, int64_t turn) const {
    return group_.BulkStage(index_, member, turn);
  }

  /// Counts what `member` read of this one and this one of it.
  void Count(int member, int64_t sent, int64_t received);
  void CountSmall(int64_t bytes);
  /// Waits until the emulated link would have carried as much.
  Status Pace(int64_t sent, int64_t received);

 private:
  SegmentPlace PlaceOf(std::span<const std::byte> bulk);
  void HandOver();
  Status Locate(std::span<const size_t> sizes, std::span<std::byte*> places);
  Status MapNew(std::span<const SegmentPlace> places, std::span<const size_t> sizes);
  std::optional<Mapping> MapRegion(int member, uint64_t region, size_t bytes) const;
  bool AnyRefused() const;

  std::span<const std::byte> data_;
  SegmentPlace place_;
  std::shared_ptr<const SharedRegion> region_;  ///< Of the own bulk.
  bool handed_over_ = true;                     ///< All were given its descriptor.
};

}  // namespace heddle::comm
