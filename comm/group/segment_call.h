/// \file
/// A collective in a group's segment: its member's data, the places of the other members' data, and
/// the count of bytes moved.
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

/// The address of each member's data in this process, and its size.
using SegmentPlaces = std::array<std::byte*, kMaxSharing>;
using SegmentSizes = std::array<size_t, kMaxSharing>;

/// One collective of this member. Thread: one.
class SegmentCall : public SegmentSlot {
 public:
  using SegmentSlot::SegmentSlot;

  /// Announces this call with `data` (at most small_bytes) and waits until all members have
  /// announced it. Returns false at all members if the slots are in use by other calls; the call is
  /// then done by messages. Errors: those of CallWaits::Look if the members disagree in `shape` or
  /// one is in another call; those of Communicator.
  Result<bool> EnterSmall(uint64_t shape, std::span<const std::byte> data);
  /// Announces this call with the place of `bulk`, like EnterSmall. Sets places[i] to the address
  /// in this process of the sizes[i] bytes of member i; null for private memory. A place is null at
  /// all members or at none. Further errors: kDataLoss (a place outside of its region).
  Result<bool> EnterBulk(uint64_t shape,
                         std::span<const std::byte> bulk,
                         std::span<const size_t> sizes,
                         std::span<std::byte*> places);

  /// The data that a member announced with EnterSmall. Valid until this call ends.
  const std::byte* SmallData(int member) const;
  /// One of a member's two bulk stages, by the parity of `turn`.
  std::byte* Stage(int member, int64_t turn) const {
    return group_.BulkStage(index_, member, turn);
  }

  /// Counts in the metrics the bytes that `member` read from this member (`sent`) and that this
  /// member read from it (`received`).
  void Count(int member, int64_t sent, int64_t received);
  /// Counts `bytes` bytes to and from each member, in batches.
  void CountSmall(int64_t bytes);
  /// Waits until the emulated link could have carried `sent` and `received` bytes.
  Status Pace(int64_t sent, int64_t received);

 private:
  /// Members agree on the urgency, too: it decides which messages do a call that finds no slot.
  uint64_t ShapeOf(uint64_t shape) const { return options_.urgent ? ~shape : shape; }
  SegmentPlace PlaceOf(std::span<const std::byte> bulk);
  void HandOver();
  Status Locate(std::span<const size_t> sizes, std::span<std::byte*> places);
  Status MapNew(std::span<const SegmentPlace> places, std::span<const size_t> sizes);
  std::optional<Mapping> MapRegion(int member, uint64_t region, size_t bytes) const;
  bool AnyRefused() const;

  std::span<const std::byte> data_;
  SegmentPlace place_;
  std::shared_ptr<const SharedRegion> region_;  ///< The region of this member's bulk.
  bool handed_over_ = true;                     ///< All peers were sent the region's descriptor.
};

}  // namespace heddle::comm
