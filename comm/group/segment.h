/// \file
/// Members of a group on one host, joined by one segment of shared memory: how it comes to be, and
/// how a collective's members find each other in it, wait for each other and give up.
///
/// The segment holds slots; a collective in flight occupies one. In a slot every member has a block
/// that only it writes: two lines that announce what it brings (by the parity of the call, so that
/// a slow member still reads the last call while a fast one announces the next) and a counter of
/// the phases that it has completed. The first member chooses the slot of a call; the others
/// announce themselves in the slot they expect and move when they find their tag in another, so
/// that a lone small call costs one cache line a member and direction, and concurrent calls may
/// come in any order. What peers write is never trusted with more than its value: counters are
/// compared with own copies, places are checked against own mappings.
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
#include "comm/group/segment_regions.h"
#include "comm/message/call_signature.h"
#include "comm/message/channel.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

/// Larger groups on one host exchange messages instead.
inline constexpr int kMostSharing = 64;
/// Collectives of one group that may be in its segment at once; further ones exchange messages.
inline constexpr int kSegmentSlots = 4;

/// Spaces of the messages that form groups and tell of calls that went elsewhere
/// (call_signature.h).
inline constexpr uint64_t kSegmentSpace = kFormingSpace;
inline constexpr uint64_t kSegmentElsewhere = kSegmentSpace | (uint64_t{1} << 57);

/// A call's signature and, below it, what there is room for of its ordinal.
inline constexpr int kSegmentOrdinalBits = 64 - kSignatureBits;
inline constexpr uint64_t kSegmentOrdinalMask = (uint64_t{1} << kSegmentOrdinalBits) - 1;
inline uint64_t SegmentCallWord(const CallNumber& number) {
  return (static_cast<uint64_t>(SignatureOf(number.space)) << kSegmentOrdinalBits) |
         (number.ordinal & kSegmentOrdinalMask);
}

/// The word of a slot's call number `call` with `tag`; never 0, which is no call's.
inline uint64_t SegmentWord(uint64_t call, uint64_t tag) {
  uint64_t mixed = (tag ^ (tag >> 32)) * 0xD6E8FEB86659FD93U;
  mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93U;
  const uint64_t word = mixed + call * 0x9E3779B97F4A7C15U;
  return word == 0 ? 1 : word;
}

/// What a member brings to a call, in its own cache line.
struct alignas(64) SegmentLine {
  std::atomic<uint64_t> word;   ///< SegmentWord(call, tag): the line is that call's.
  std::atomic<uint64_t> shape;  ///< Kind, type and sizes: equal for all, or the call is refused.
  std::atomic<uint64_t> call;   ///< SegmentCallWord: what to tell when shapes differ.
  std::array<std::byte, 40> data;
};
static_assert(sizeof(SegmentLine) == 64);

/// A member's part of a slot; written by that member alone.
struct alignas(128) SegmentBlock {
  std::array<SegmentLine, 2> lines;  ///< By the call's parity.
  alignas(128) std::atomic<uint64_t> phase;
  std::atomic<uint32_t> refused;              ///< A region of this call could not be mapped.
  alignas(64) std::atomic<uint32_t> writing;  ///< It may be writing to others' memory.
};
static_assert(sizeof(SegmentBlock) == 256);

struct alignas(128) SegmentSlotHeader {
  std::atomic<uint32_t> notification;  ///< Futex; raised when someone sleeps.
  std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<uint32_t> closed;  ///< A member gave up: its position + 1.
};

/// Ends the sleep of all who wait in a slot.
void WakeSleepers(SegmentSlotHeader& header);

/// Where everything lies in the segment of `members`.
struct SegmentLayout {
  explicit SegmentLayout(int members);
  size_t small_bytes = 0;  ///< Of one of a member's two small stages in a slot.
  size_t bulk_bytes = 0;   ///< Of one of its two bulk stages.
  size_t control_bytes = 0;
  size_t slot_bytes = 0;
  size_t total_bytes = 0;
};

/// One such group. Thread: any.
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

  /// A member ended (`left`: in good order), or the whole group did: waits end.
  void MemberEnded(int rank, const Status& status, bool left) HEDDLE_EXCLUDES(mutex_);
  void End(const Status& status) HEDDLE_EXCLUDES(mutex_);

  /// A member that has announced a call of the same tag and ordinal and with another signature: the
  /// proof that it will not make this one.
  std::optional<Conflict> FindConflict(const CallNumber& number) const;

 private:
  friend class SegmentSlot;
  friend class SegmentEntry;
  friend class SegmentCall;
  /// What this process knows of a slot.
  struct Slot {
    std::atomic<bool> busy = false;   ///< A call of this process holds it; for ever once it failed.
    std::atomic<uint64_t> calls = 0;  ///< Completed.
    std::array<std::atomic<uint64_t>, 2> chosen{};  ///< The first member's words, as last used.
    // The holder's:
    uint64_t phase = 0;     ///< Own counter.
    int64_t uncounted = 0;  ///< Bytes of small calls, not yet in the metrics.
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
  /// Ends the sleep of the members in a slot who wait for what was just announced there.
  void Notify(int slot) const;
  /// What an error adds about a wait for `member`: "; worker-2 holds it up", or nothing.
  std::string HeldUpBy(int slot, int member) const;
  /// Ends the sleep of all: somebody ended.
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

  /// Somebody ended: look under the lock who and why.
  std::atomic<bool> broken_ = false;

  mutable Mutex mutex_;
  Status end_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<Status> member_end_ HEDDLE_GUARDED_BY(mutex_);  ///< By position; ok: still there.
  Status loss_ HEDDLE_GUARDED_BY(mutex_);  ///< First member that did not leave in good order.
};

}  // namespace heddle::comm
