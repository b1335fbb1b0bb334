/// \file
/// A collective's use of a slot of a group's segment: how its member waits there for the others,
/// and how it gives up.
///
/// A wait spins for a moment (only if there is a core for each member), yields for a while (only if
/// that is quick), and then sleeps on a futex in slices. Between slices it checks that the group
/// has not ended and that no member was lost.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/group/segment.h"
#include "comm/message/call_signature.h"

namespace heddle::comm {

class Group;

/// Longest sleep of a wait before it checks for failures again.
inline constexpr Duration kSegmentSlice = std::chrono::milliseconds(20);

/// The condition that a wait waits for; refers to the caller's object.
struct SegmentCondition {
  const void* object = nullptr;
  bool (*call)(const void* object) = nullptr;
  bool operator()() const { return call(object); }
};

/// One call's use of a slot. Thread: one.
class SegmentSlot {
 public:
  SegmentSlot(Group& owner,
              GroupSegment& group,
              const CollectiveOptions& options,
              const CallNumber& number);
  /// Frees the slot for the next call. After an error the slot is never used again.
  ~SegmentSlot();
  SegmentSlot(const SegmentSlot&) = delete;
  SegmentSlot& operator=(const SegmentSlot&) = delete;

  int size() const { return group_.size(); }
  int position() const { return group_.position(); }
  const SegmentLayout& layout() const { return group_.layout(); }

  /// Counts a completed phase of this member and notifies the others.
  void Arrive();
  /// Waits until every member has completed as many phases as this member, less `behind`.
  Status WaitAll(int64_t behind = 0);
  /// Waits until `member` has completed as many phases as this member, less `behind`.
  Status WaitFor(int member, int64_t behind);

  /// Lets other members write to `own` until the call has succeeded. If the call fails, late writes
  /// are kept away from it. Must be called before the call is entered.
  void Expose(std::span<std::byte> own) { exposed_ = own; }
  /// Must be called before writes to other members' memory. Fails once a member has given up.
  Status BeginWriting();
  /// Must be called after writes to other members' memory.
  void EndWriting();
  /// Returns why the call is to stop, or ok. Called between pieces of long work.
  Status Interrupted();
  /// Must be called after reads from other members' memory. Fails if a member gave up before they
  /// ended, because that member reuses its memory.
  Status ConfirmReads();

 protected:
  /// Waits until ready() is true. `member`: the position that errors name.
  template <typename Ready>
  Status Wait(int member, const Ready& ready, Duration slice) {
    const auto call = [](const void* object) { return (*static_cast<const Ready*>(object))(); };
    return ready() ? Status::Ok() : WaitLong(member, {.object = &ready, .call = call}, slice);
  }
  /// Ends this call with `status` at this member and, through the slot, at all members in it.
  Status Fail(const Status& status);
  SegmentLine& LineOf(int member) const { return group_.Line(index_, member, call_); }
  SegmentBlock& BlockOf(int member) const { return group_.Block(index_, member); }
  GroupSegment::Slot& known() const { return group_.slots_[static_cast<size_t>(index_)]; }

  Group& owner_;
  GroupSegment& group_;
  const CollectiveOptions options_;
  const CallNumber number_;
  int index_ = 0;      ///< Index of the slot.
  uint64_t call_ = 0;  ///< Number of this call in the slot, from 1.

 private:
  friend class SegmentEntry;
  enum class State : uint8_t { kOutside, kExpecting, kInside, kFailed };
  /// SegmentLine::word of this call.
  uint64_t Word() const { return SegmentWord(call_, options_.tag); }
  Status WaitLong(int member, const SegmentCondition& ready, Duration slice);
  bool WaitAwake(const SegmentCondition& ready) const;
  Status ReasonOfClose(uint32_t closed);
  Status Failure(int member);
  void FenceLateWrites();
  std::string_view Name() const { return CallName(SignatureOf(number_.space)); }

  std::optional<Deadline> deadline_;  ///< Set by the first wait that has to sleep.
  std::optional<Time> closed_since_;  ///< When this member saw that another gave up.
  State state_ = State::kOutside;
  bool all_inside_ = false;  ///< All members have entered this call.
  std::span<std::byte> exposed_;
};

}  // namespace heddle::comm
