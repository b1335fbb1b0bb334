/// \file
/// A collective's use of a slot of a group's segment: how its member waits there for the others,
/// and how it gives up.
///
/// A wait spins for a moment (only if there is a core a member), yields for a while (only if that
/// is quick), and then sleeps on a futex in slices. Each look checks that the group has not ended
/// and that no member was lost.
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

/// A sleep's slices: each looks whether to go on.
inline constexpr Duration kSegmentSlice = std::chrono::milliseconds(20);

/// What a wait is for; refers to the caller's.
struct SegmentCondition {
  const void* object = nullptr;
  bool (*call)(const void* object) = nullptr;
  bool operator()() const { return call(object); }
};

/// Of one call. Thread: one.
class SegmentSlot {
 public:
  SegmentSlot(Group& owner,
              GroupSegment& group,
              const CollectiveOptions& options,
              const CallNumber& number);
  /// Leaves the slot to the next call; after an error nobody uses it again.
  ~SegmentSlot();
  SegmentSlot(const SegmentSlot&) = delete;
  SegmentSlot& operator=(const SegmentSlot&) = delete;

  int size() const { return group_.size(); }
  int position() const { return group_.position(); }
  const SegmentLayout& layout() const { return group_.layout(); }

  /// Tells the others that this member completed a phase.
  void Arrive();
  /// Until everyone (or one member) has completed as many phases as this member has, less `behind`.
  Status WaitAll(int64_t behind = 0);
  Status WaitFor(int member, int64_t behind);

  /// From now on, and until the call has ended well, others may write to `own`: an error takes it
  /// away from them. To be called before the call is entered.
  void Expose(std::span<std::byte> own) { exposed_ = own; }
  /// Around writes to the memory of others. BeginWriting fails once someone gave up.
  Status BeginWriting();
  void EndWriting();
  /// To be looked at between pieces of long work: why to stop.
  Status Interrupted();
  /// After reads from the memory of others: fails if someone gave up before they ended, because
  /// whoever gives up uses its memory again.
  Status ConfirmReads();

 protected:
  /// Until ready() holds. `member`: who is waited for.
  template <typename Ready>
  Status Wait(int member, const Ready& ready, Duration slice) {
    const auto call = [](const void* object) { return (*static_cast<const Ready*>(object))(); };
    return ready() ? Status::Ok() : WaitLong(member, {.object = &ready, .call = call}, slice);
  }
  /// Ends this call here and, for those who are in it, everywhere.
  Status Fail(const Status& status);
  SegmentLine& LineOf(int member) const { return group_.Line(index_, member, call_); }
  SegmentBlock& BlockOf(int member) const { return group_.Block(index_, member); }
  GroupSegment::Slot& known() const { return group_.slots_[static_cast<size_t>(index_)]; }

  Group& owner_;
  GroupSegment& group_;
  const CollectiveOptions options_;
  const CallNumber number_;
  int index_ = 0;      ///< Of the slot.
  uint64_t call_ = 0;  ///< The slot's calls before this one, and 1.

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

  std::optional<Deadline> deadline_;  ///< Known once a wait takes long enough to look.
  std::optional<Time> closed_since_;  ///< When this member saw that another gave up.
  State state_ = State::kOutside;
  bool all_inside_ = false;  ///< Everyone is in the same call.
  std::span<std::byte> exposed_;
};

}  // namespace heddle::comm
