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
///
/// A wait spins for a moment (only if there is a core a member), yields for a while, and then
/// sleeps on a futex in slices. Each look checks that the group has not ended and that no member
/// was lost.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/message/call_signature.h"
#include "comm/message/channel.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

class Group;

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

/// Where a member's data lies when it brings shared memory of its own; travels in
/// SegmentLine::data.
struct SegmentPlace {
  uint64_t region = 0;  ///< 0: private memory.
  uint64_t offset = 0;
  uint64_t fresh = 0;  ///< 1: the region's descriptor was sent just now.
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
  /// An own region among the members.
  enum class Offer : uint8_t {
    kHandedOver,  ///< They have its descriptor; the call that was to map it went elsewhere.
    kOffered,     ///< A call in flight tells whether all can map it.
    kUsable,
    kRefused,  ///< It is copied through the segment.
  };
  /// A member's shared memory, mapped here.
  struct Foreign {
    Mapping mapping;
    bool usable = false;
  };

  SegmentSlotHeader& Header(int slot) const;
  SegmentBlock& Block(int slot, int member) const;
  std::byte* Stages(int slot, int member) const;
  void WakeAll();

  const std::vector<int> ranks_;
  const int position_;
  const std::vector<std::string> names_;
  const std::vector<std::shared_ptr<Channel>> channels_;  ///< By position; null for this member.
  const std::shared_ptr<SharedRegions> regions_;
  const Mapping segment_;
  const SegmentLayout layout_;
  const bool may_spin_;
  std::array<Slot, kSegmentSlots> slots_;
  std::atomic<int> expected_slot_ = 0;
  std::atomic<Time> sleep_until_ = Time();  ///< The cores are busy: waits sleep at once.

  /// Somebody ended: look under the lock who and why.
  std::atomic<bool> broken_ = false;

  mutable Mutex mutex_;
  Status end_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<Status> member_end_ HEDDLE_GUARDED_BY(mutex_);  ///< By position; ok: still there.
  Status loss_ HEDDLE_GUARDED_BY(mutex_);  ///< First member that did not leave in good order.
  std::map<uint64_t, Offer> offered_ HEDDLE_GUARDED_BY(mutex_);  ///< Own regions.
  std::vector<std::map<uint64_t, Foreign>> foreign_ HEDDLE_GUARDED_BY(mutex_);
};

/// One collective of this member in the segment. Thread: one.
class SegmentCall {
 public:
  SegmentCall(Group& owner,
              GroupSegment& group,
              const CollectiveOptions& options,
              const CallNumber& number);
  /// Leaves the slot to the next call; after an error nobody uses it again.
  ~SegmentCall();
  SegmentCall(const SegmentCall&) = delete;
  SegmentCall& operator=(const SegmentCall&) = delete;

  int size() const { return group_.size(); }
  int position() const { return group_.position(); }
  const SegmentLayout& layout() const { return group_.layout(); }

  /// Announces this call with `data` (at most small_bytes), or with where `bulk` lies, and waits
  /// until all members have announced it. False: the segment is full of other calls, and all
  /// members exchange messages for this one. Errors: those of CallWaits::Look when the members
  /// disagree in `shape`, or one is in another call; those of Communicator.
  Result<bool> EnterSmall(uint64_t shape, std::span<const std::byte> data);
  Result<bool> EnterBulk(uint64_t shape, std::span<const std::byte> bulk);

  /// What a member announced with EnterSmall. Valid until this call ends.
  const std::byte* SmallData(int member) const;

  /// Where the members' bulk lies, by position, here; null for private memory. Maps what is new;
  /// all members call it after EnterBulk and come to the same answer. sizes[i]: bytes that member i
  /// brings. Errors: kDataLoss (a place outside of its region).
  Status Locate(std::span<const size_t> sizes, std::span<std::byte*> places);

  /// One of a member's two bulk stages.
  std::byte* Stage(int member, int64_t turn) const;

  /// Tells the others that this member completed a phase.
  void Arrive();
  /// Until everyone (or one member) has completed as many phases as this member has, less `behind`.
  Status WaitAll(int64_t behind = 0);
  Status WaitFor(int member, int64_t behind);

  /// From now on, and until the call has ended well, others may write to `own`: an error takes it
  /// away from them. To be called before EnterBulk.
  void Expose(std::span<std::byte> own) { exposed_ = own; }
  /// Around writes to the memory of others. BeginWriting fails once someone gave up.
  Status BeginWriting();
  void EndWriting();
  /// To be looked at between pieces of long work: why to stop.
  Status Interrupted();
  /// After reads from the memory of others: fails if someone gave up before they ended, because
  /// whoever gives up uses its memory again.
  Status ConfirmReads();

  /// Counts what `member` read of this one and this one of it.
  void Count(int member, int64_t sent, int64_t received);
  void CountSmall(int64_t bytes);
  /// Waits until the emulated link would have carried as much.
  Status Pace(int64_t sent, int64_t received);

 private:
  enum class Entry : uint8_t { kOutside, kExpecting, kInside, kFailed };

  Result<bool> Enter();
  Result<bool> EnterFirst();
  Result<bool> Follow();
  bool Join();
  Status LostSlot() const;
  Result<bool> WentElsewhere();
  Status ShapesDiffer(int member) const;
  void Publish(int slot);
  void Retract();
  bool Hold(int slot);
  SegmentLine& LineOf(int slot, int member, uint64_t call) const;
  SegmentPlace PlaceOf(std::span<const std::byte> bulk);
  Status LocateAll(std::span<const size_t> sizes, std::span<std::byte*> places);
  void HandOver();
  Status MapNew(std::span<const SegmentPlace> places, std::span<const size_t> sizes);
  Result<Mapping> MapRegion(int member, uint64_t region, size_t bytes) const;
  bool AnyRefused() const;

  /// Until ready() holds. `member`: who is waited for.
  template <typename Ready>
  Status Wait(int member, const Ready& ready, Duration slice);
  std::string HeldUpBy(int member) const;
  Status ReasonOfClose(uint32_t closed);
  Status Failure(int member);
  Status Fail(const Status& status);
  void FenceLateWrites();
  void Notify() const;
  std::string_view Name() const { return CallName(SignatureOf(number_.space)); }

  Group& owner_;
  GroupSegment& group_;
  const CollectiveOptions options_;
  const CallNumber number_;
  std::optional<Deadline> deadline_;        ///< Known once a wait takes long enough to look.
  std::optional<Time> closed_since_;        ///< When this member saw that another gave up.
  std::shared_ptr<Work::State> elsewhere_;  ///< News that the call went elsewhere.

  Entry entry_ = Entry::kOutside;
  bool all_inside_ = false;  ///< Everyone is in the same call.
  int slot_ = 0;
  uint64_t call_ = 0;
  uint64_t shape_ = 0;
  std::span<const std::byte> data_;
  SegmentPlace place_;
  std::shared_ptr<const SharedRegion> region_;  ///< Of the own bulk.
  bool handed_over_ = true;                     ///< All were given its descriptor.
  std::span<std::byte> exposed_;
};

/// The segments of a communicator's groups. Thread: any.
class GroupSegments {
 public:
  GroupSegments(Group& group, std::shared_ptr<SharedRegions> regions);

  /// The group that `options` names, formed by all its members at their first call, here the one
  /// of `number`. Null: its members do not all share memory. Errors: those of CallWaits::Look
  /// and of Communicator.
  Result<std::shared_ptr<GroupSegment>> Get(const CollectiveOptions& options,
                                            const CallNumber& number) HEDDLE_EXCLUDES(mutex_);
  /// GroupSegment's, of the group of the call; none when it is not formed.
  std::optional<Conflict> FindConflict(const CallNumber& number) HEDDLE_EXCLUDES(mutex_);

  void MemberEnded(int rank, const Status& status, bool left) HEDDLE_EXCLUDES(mutex_);
  void End(const Status& status) HEDDLE_EXCLUDES(mutex_);

  int members_here() const { return members_here_; }

 private:
  struct Entry {
    std::vector<int> ranks;
    uint64_t hash = 0;  ///< CallNumber::group.
    bool forming = true;
    std::shared_ptr<GroupSegment> group;  ///< Null once formed: they do not share memory.
  };
  bool Matches(const Entry& entry, std::span<const int> ranks) const;
  class Forming;
  /// Lets go of the lock meanwhile.
  Result<std::shared_ptr<GroupSegment>> FormEntry(Entry& entry,
                                                  const CallNumber& number,
                                                  Deadline deadline) HEDDLE_REQUIRES(mutex_);
  const std::string& NameOf(int rank) const;
  bool OnOneHost(const std::vector<int>& ranks) const;
  bool SharesWithAll(const std::vector<int>& ranks) const;
  Result<std::shared_ptr<GroupSegment>> Lead(Forming& call);
  Result<std::shared_ptr<GroupSegment>> Join(Forming& call);
  Result<Mapping> HandOutSegment(const Forming& call, uint64_t number) const;
  Result<Mapping> MapSegment(const Forming& call, uint64_t number) const;
  std::shared_ptr<GroupSegment> Make(const Forming& call, Mapping segment) const;

  Group& group_;
  const std::shared_ptr<SharedRegions> regions_;
  std::vector<std::string> hosts_;  ///< By rank: of those that offer shared memory; else empty.
  int members_here_ = 0;
  std::atomic<uint64_t> next_segment_ = 1;

  Mutex mutex_;
  CondVar formed_;
  std::vector<std::shared_ptr<Entry>> entries_ HEDDLE_GUARDED_BY(mutex_);
  struct Ended {
    int rank = 0;
    Status status;
    bool left = false;
  };
  std::vector<Ended> members_ended_ HEDDLE_GUARDED_BY(mutex_);
  Status end_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
