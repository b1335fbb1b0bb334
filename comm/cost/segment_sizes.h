/// \file
/// The sizes of the memory through which the members of a group on one host do their collectives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::comm {

/// The most members of a group with a segment; larger groups on one host exchange messages instead.
inline constexpr int kMaxSharing = 64;
/// Collectives of one group that may be in its segment at once; further ones exchange messages.
inline constexpr int kSegmentSlots = 4;

/// Of a group of some members: each has two stages of either size in each slot.
struct SegmentStages {
  size_t small_bytes = 0;
  size_t bulk_bytes = 0;
};
SegmentStages StagesOf(int members);

/// Bytes of the segment of a group of so many members, without its few control words; each member
/// maps all of it. 0: the group has none.
int64_t SegmentBytes(int members);

}  // namespace heddle::comm
