/// \file
/// A group's segment of shared memory, which joins members on one host: its layout, and the state
/// by which the members of a collective find each other, wait for each other and give up.
///
/// The segment holds slots; a collective in flight occupies one. In a slot every member has a block
/// that only it writes: two lines that announce the call and its data (by the parity of the call,
/// so that a slow member still reads the last call while a fast one announces the next) and a
/// counter of the phases that it has completed. The first member chooses the slot of a call. The
/// others announce themselves in the slot that they expect and move when they find their tag in
/// another, so that a single small call costs one cache line per member and direction, and
/// concurrent calls may come in any order. Values that peers write are validated: counters are
/// compared with private copies, and places are checked against the local mappings.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/system/yield_gate.h"
#include "comm/cost/segment_sizes.h"
#include "comm/group/segment_regions.h"
#include "comm/message/call_signature.h"
#include "comm/message/channel.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

/// Key spaces (call_signature.h) of the messages that form a segment, and of those that notify
/// members that a call is done by messages instead of the segment.
inline constexpr uint64_t kSegmentSpace = kFormingSpace;
inline constexpr uint64_t kSegmentByMessages = kSegmentSpace | (uint64_t{1} << 57);

/// A call word holds the call's signature in its high bits and the low bits of the call's ordinal.
inline constexpr int kSegmentOrdinalBits = 64 - kSignatureBits;
inline constexpr uint64_t kSegmentOrdinalMask = (uint64_t{1} << kSegmentOrdinalBits) - 1;
inline uint64_t SegmentCallWord(const CallNumber& number) {
  return (static_cast<uint64_t>(SignatureOf(number.space)) << kSegmentOrdinalBits) |
         (number.ordinal & kSegmentOrdinalMask);
}

/// The word that announces call number `call` of a slot with `tag`. Never 0, which stands for no
/// call.
inline uint64_t SegmentWord(uint64_t call, uint64_t tag) {
  uint64_t mixed = (tag ^ (tag >> 32)) * 0xD6E8FEB86659FD93U;
  mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93U;
  const uint64_t word = mixed + call * 0x9E3779B97F4A7C15U;
  return word == 0 ? 1 : word;
}

/// A member's announcement of a call, in a cache line of its own.
struct alignas(64) SegmentLine {
  std::atomic<uint64_t> word;   ///< SegmentWord of the call that the line announces.
  std::atomic<uint64_t> shape;  ///< Hash of kind, type and sizes; must be equal at all members.
  std::atomic<uint64_t> call;   ///< SegmentCallWord, for the error when shapes differ.
  std::array<std::byte, 40> data;
};
static_assert(sizeof(SegmentLine) == 64);

/// A member's part of a slot; written by that member alone.
struct alignas(128) SegmentBlock {
  std::array<SegmentLine, 2> lines;  ///< By the call's parity.
  alignas(128) std::atomic<uint64_t> phase;
  std::atomic<uint32_t> refused;              ///< 1: this member could not map a region.
  alignas(64) std::atomic<uint32_t> writing;  ///< 1: this member may write to others' memory.
};
static_assert(sizeof(SegmentBlock) == 256);

struct alignas(128) SegmentSlotHeader {
  std::atomic<uint32_t> notification;        ///< Futex word, incremented to wake sleepers.
  std::atomic<uint32_t> sleepers;            ///< Number of members that sleep, or are about to.
  alignas(64) std::atomic<uint32_t> closed;  ///< 1 + position of a member that gave up; 0: none.
};

/// Wakes all members that sleep in a slot.
void WakeSleepers(SegmentSlotHeader& header);

/// The sizes of the areas in the segment of a group of `members`.
struct SegmentLayout {
  explicit SegmentLayout(int members);
  size_t small_bytes = 0;  ///< Size of each of a member's two small stages in a slot.
  size_t bulk_bytes = 0;   ///< Size of each of a member's two bulk stages in a slot.
  size_t control_bytes = 0;
  size_t slot_bytes = 0;
  size_t total_bytes = 0;
};

/// A group with a segment, on one of its members. Thread: any.
class GroupSegment {
 public:
  GroupSegment(std::vector<int> ranks,
               int position,
               std::vector<std::string> names,
               std::vector<std::shared_ptr<Channel>> channels,
               std::shared_ptr<SharedRegions> regions,
               Mapping segment);

  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  const std::vector<int>& ranks() const { return ranks_; }
  const SegmentLayout& layout() const { return layout_; }

  /// Ends waits for the member of `rank` with `status`; unless it left in good order (`left`), all
  /// waits end.
  void MemberEnded(int rank, const Status& status, bool left) HEDDLE_EXCLUDES(mutex_);
  /// Ends all waits with `status`, because the whole group has ended.
  void End(const Status& status) HEDDLE_EXCLUDES(mutex_);

  /// A member that has announced a call with the same tag and ordinal and another signature, which
  /// proves that it will not make this call; nullopt: none.
  std::optional<Conflict> FindConflict(const CallNumber& number) const;

 private:
  friend class SegmentSlot;
  friend class SegmentEntry;
  friend class SegmentCall;
  /// This process's private state of a slot.
  struct Slot {
    std::atomic<bool> busy = false;   ///< A call of this process holds it; stays true on failure.
    std::atomic<uint64_t> calls = 0;  ///< Number of completed calls.
    std::array<std::atomic<uint64_t>, 2> chosen{};  ///< Words of the last calls, by parity.
    // Fields of the call that holds the slot:
    uint64_t phase = 0;     ///< This member's count of completed phases.
    int64_t uncounted = 0;  ///< Bytes of small calls that are not in the metrics yet.
  };
  SegmentSlotHeader& Header(int slot) const;
  SegmentBlock& Block(int slot, int member) const;
  SegmentLine& Line(int slot, int member, uint64_t call) const {
    return Block(slot, member).lines[call % 2];
  }
  std::byte* SmallStage(int slot, int member, uint64_t call) const {
    return Stages(slot, member) + (call % 2) * layout_.small_bytes;
  }
  std::byte* BulkStage(int slot, int member, int64_t turn) const {
    return Stages(slot, member) + 2 * layout_.small_bytes +
           static_cast<size_t>(turn % 2) * layout_.bulk_bytes;
  }
  std::byte* Stages(int slot, int member) const;
  /// Wakes the members that sleep in a slot, after an announcement there.
  void Notify(int slot) const;
  /// The suffix of an error of a wait for `member` that names another member that delays it:
  /// "; worker-2 holds it up", or empty.
  std::string HeldUpBy(int slot, int member) const;
  /// Wakes the sleepers of all slots, because a member or the group has ended.
  void Break();

  const std::vector<int> ranks_;
  const int position_;
  const std::vector<std::string> names_;
  const std::vector<std::shared_ptr<Channel>> channels_;  ///< By position; null for this member.
  const std::shared_ptr<SharedRegions> regions_;
  const Mapping segment_;
  const SegmentLayout layout_;
  const bool may_spin_;
  MemberRegions member_regions_;
  std::array<Slot, kSegmentSlots> slots_;
  std::atomic<int> expected_slot_ = 0;
  YieldGate yield_gate_;

  /// A member or the group has ended; the fields under the lock say which and why.
  std::atomic<bool> broken_ = false;

  mutable Mutex mutex_;
  Status end_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<Status> member_end_ HEDDLE_GUARDED_BY(mutex_);  ///< By position; ok: still there.
  Status loss_ HEDDLE_GUARDED_BY(mutex_);  ///< First member lost or aborted; ok: none.
};

}  // namespace heddle::comm
