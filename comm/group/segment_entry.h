/// \file
/// How the members of a group find each other in its segment (segment.h): a call's entry into a
/// slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "comm/group/segment_slot.h"
#include "comm/message/work.h"

namespace heddle::comm {

/// A member's announcement of a call.
struct SegmentAnnouncement {
  uint64_t shape = 0;                    ///< SegmentLine::shape.
  std::span<const std::byte> data = {};  ///< At most SegmentLayout::small_bytes.
  SegmentPlace place = {};               ///< Place of the data, used if `data` is empty.
};

/// One call's entry into a slot. Thread: one.
class SegmentEntry {
 public:
  /// Both arguments outlive it.
  SegmentEntry(SegmentSlot& slot, const SegmentAnnouncement& announcement)
      : slot_(slot),
        group_(slot.group_),
        announcement_(announcement) {}
  /// Retracts an announcement in a slot that was not chosen for the call.
  ~SegmentEntry();
  SegmentEntry(const SegmentEntry&) = delete;
  SegmentEntry& operator=(const SegmentEntry&) = delete;

  /// Announces the call and waits until all members have announced it. Returns false at all members
  /// if the slots are in use by other calls; the call is then done by messages. Errors: those of
  /// CallWaits::Look if the members disagree in `shape` or one is in another call; those of
  /// Communicator.
  Result<bool> Enter();

 private:
  Result<bool> EnterFirst();
  Result<bool> Follow();
  bool Join();
  Status LostSlot() const;
  Result<bool> WentElsewhere();
  Status ShapesDiffer(int member) const;
  bool Hold(int slot);
  void Publish();
  void Retract();

  SegmentSlot& slot_;
  GroupSegment& group_;
  const SegmentAnnouncement& announcement_;
  std::shared_ptr<Work::State> elsewhere_;  ///< Recv of the notice that messages do the call.
};

}  // namespace heddle::comm
