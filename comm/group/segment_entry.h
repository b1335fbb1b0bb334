/// \file
/// How the members of a group find each other in its segment (segment.h): one call's way into a
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

/// What a member brings to a call.
struct SegmentAnnouncement {
  uint64_t shape = 0;                    ///< SegmentLine::shape.
  std::span<const std::byte> data = {};  ///< At most SegmentLayout::small_bytes.
  SegmentPlace place = {};               ///< Instead of data.
};

/// One entry. Thread: one.
class SegmentEntry {
 public:
  /// Both outlive it.
  SegmentEntry(SegmentSlot& slot, const SegmentAnnouncement& announcement)
      : slot_(slot),
        group_(slot.group_),
        announcement_(announcement) {}
  /// Takes back what nobody has read.
  ~SegmentEntry();
  SegmentEntry(const SegmentEntry&) = delete;
  SegmentEntry& operator=(const SegmentEntry&) = delete;

  /// Announces the call and waits until all members have announced it. False: the segment is full
  /// of other calls, and all members exchange messages for this one. Errors: those of
  /// CallWaits::Look when the members disagree in `shape`, or one is in another call; those of
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
  std::shared_ptr<Work::State> elsewhere_;  ///< News that the call went elsewhere.
};

}  // namespace heddle::comm
