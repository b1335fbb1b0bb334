#include "comm/group/segment_entry.h"

#include <cstring>

#include "comm/group/group.h"
#include "comm/transport/streaming_copy.h"

namespace heddle::comm {

namespace {

/// Longest sleep of a wait while the slot is not known.
constexpr Duration kEntrySlice = std::chrono::milliseconds(5);

// A notice of one call must not match the Recv of another call of the same tag, which may already
// have begun.
uint64_t ElsewhereOf(const CallNumber& number) {
  return kSegmentByMessages | (number.ordinal & kSegmentOrdinalMask);
}

}  // namespace

SegmentEntry::~SegmentEntry() {
  if (elsewhere_ != nullptr && !elsewhere_->Done()) {
    elsewhere_->Cancel(CancelledError("the call is in the segment"));
  }
  if (slot_.state_ == SegmentSlot::State::kExpecting) {
    Retract();
  }
}

bool SegmentEntry::Hold(int slot) {
  GroupSegment::Slot& known = group_.slots_[static_cast<size_t>(slot)];
  if (known.busy.load() || known.busy.exchange(true)) {
    return false;
  }
  slot_.index_ = slot;
  slot_.call_ = known.calls.load() + 1;
  return true;
}

// The line of this call is free: a member that enters call c has completed call c - 1. All members
// had entered that call, and so had completed call c - 2, which used the line before.
void SegmentEntry::Publish() {
  const std::span<const std::byte> data = announcement_.data;
  SegmentLine& line = slot_.LineOf(slot_.position());
  line.shape.store(announcement_.shape, std::memory_order_relaxed);
  line.call.store(SegmentCallWord(slot_.number_),
                  std::memory_order_release);  // For GroupSegment::FindConflict.
  if (data.size() > line.data.size()) {
    CopyToStage(group_.SmallStage(slot_.index_, slot_.position(), slot_.call_), data.data(),
                data.size());
  } else if (!data.empty()) {
    std::memcpy(line.data.data(), data.data(), data.size());
  } else {
    std::memcpy(line.data.data(), &announcement_.place, sizeof(SegmentPlace));
  }
  line.word.store(slot_.Word());
  group_.Notify(slot_.index_);
}

// Retracts an announcement in a slot that the first member has not chosen for this call. No member
// has read it, and none will, because the next call with this tag begins after this one, when the
// word is gone. If the first member chose the slot at the very moment at which this member gives
// up, others may be reading, so the slot is not used again.
void SegmentEntry::Retract() {
  slot_.LineOf(slot_.position()).word.store(0);
  if (slot_.LineOf(0).word.load() == slot_.Word()) {
    slot_.state_ = SegmentSlot::State::kInside;
    slot_.Fail(Status::Ok()).IgnoreError("the caller has its own error");
    return;
  }
  slot_.known().busy.store(false);
  slot_.state_ = SegmentSlot::State::kOutside;
}

Result<bool> SegmentEntry::Enter() {
  if (group_.broken_.load()) {
    const Status failure = slot_.Failure(-1);
    if (!failure.ok()) {
      return failure;
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool inside, slot_.position() == 0 ? EnterFirst() : Follow());
  if (!inside) {
    return false;
  }
  const uint64_t word = slot_.Word();
  int unlike = -1;
  for (int member = 0; member < group_.size(); ++member) {
    const SegmentLine& line = slot_.LineOf(member);
    HEDDLE_RETURN_IF_ERROR(slot_.Wait(
        member, [&] { return line.word.load() == word; }, kSegmentSlice));
    if (line.shape.load(std::memory_order_relaxed) != announcement_.shape) {
      unlike = member;
    }
  }
  if (unlike >= 0) {
    return ShapesDiffer(unlike);
  }
  slot_.all_inside_ = true;
  return true;
}

// All members name the same two: the first member, and the first whose call differs from its call.
Status SegmentEntry::ShapesDiffer(int member) const {
  const uint64_t shape = slot_.LineOf(0).shape.load();
  for (int other = group_.size() - 1; other > 0; --other) {
    member = slot_.LineOf(other).shape.load() != shape ? other : member;
  }
  const auto signature = [&](int of) {
    return static_cast<uint32_t>(slot_.LineOf(of).call.load() >> kSegmentOrdinalBits);
  };
  return DisagreementOf(
      slot_.owner_, group_.ranks_.front(), signature(0),
      {.rank = group_.ranks_[static_cast<size_t>(member)], .signature = signature(member)});
}

// The first member takes any slot that is free here: it is free everywhere, because a call ends
// only after all have entered it.
Result<bool> SegmentEntry::EnterFirst() {
  for (int slot = 0; slot < kSegmentSlots; ++slot) {
    if (Hold(slot)) {
      slot_.state_ = SegmentSlot::State::kInside;
      Publish();
      return true;
    }
  }
  for (int member = 1; member < group_.size(); ++member) {
    // Nothing waits for it here: an error is one of the messages that follow, too.
    slot_.owner_.Send(group_.ranks()[static_cast<size_t>(member)],
                      {.tag = slot_.options_.tag, .space = ElsewhereOf(slot_.number_)}, {}, true);
  }
  return false;
}

// Announces the call where it is expected and waits until the first member has chosen a slot.
Result<bool> SegmentEntry::Follow() {
  const int expected = group_.expected_slot_.load(std::memory_order_relaxed);
  if (Hold(expected)) {
    slot_.state_ = SegmentSlot::State::kExpecting;
    Publish();
  }
  bool went_elsewhere = false;
  Status failure;
  const Status status = slot_.Wait(
      0,
      [&] {
        if (Join()) {
          return true;
        }
        if (slot_.deadline_.has_value()) {  // It takes long.
          failure = LostSlot();
          if (!failure.ok()) {
            return true;
          }
          const auto answer = WentElsewhere();
          // The first member may have chosen, completed the call and left since the look above.
          if (!answer.ok() && Join()) {
            return true;
          }
          failure = answer.status();
          went_elsewhere = answer.ok() && *answer;
        }
        return went_elsewhere || !failure.ok();
      },
      kEntrySlice);
  HEDDLE_RETURN_IF_ERROR(status);
  HEDDLE_RETURN_IF_ERROR(failure);
  if (went_elsewhere) {
    if (slot_.state_ == SegmentSlot::State::kExpecting) {
      Retract();
    }
    return false;
  }
  group_.expected_slot_.store(slot_.index_, std::memory_order_relaxed);
  return true;
}

// One look for the slot that the first member chose.
bool SegmentEntry::Join() {
  for (int i = 0; i < kSegmentSlots; ++i) {
    // The expected slot first.
    const int slot =
        slot_.state_ == SegmentSlot::State::kExpecting ? (slot_.index_ + i) % kSegmentSlots : i;
    GroupSegment::Slot& known = group_.slots_[static_cast<size_t>(slot)];
    const uint64_t call = known.calls.load() + 1;
    const uint64_t word = group_.Line(slot, 0, call).word.load();
    const bool chosen = word == SegmentWord(call, slot_.options_.tag);
    if (slot_.state_ == SegmentSlot::State::kExpecting && slot == slot_.index_) {
      if (chosen) {
        slot_.state_ = SegmentSlot::State::kInside;
        return true;
      }
      // Chosen for another call, which this process has in another thread or will have.
      if (word != known.chosen[call % 2].load()) {
        Retract();
      }
      continue;
    }
    if (!chosen) {
      continue;
    }
    if (slot_.state_ == SegmentSlot::State::kExpecting) {
      Retract();
    }
    // Another call of this process may still expect this slot; it moves as soon as it looks.
    if (Hold(slot)) {
      if (slot_.call_ == call) {
        slot_.state_ = SegmentSlot::State::kInside;
        Publish();
        return true;
      }
      known.busy.store(false);
    }
  }
  return false;
}

// A call that failed here and not at the first member leaves a slot that this member cannot use and
// the first one can: it chooses it for the next call, and this member could not tell it otherwise.
Status SegmentEntry::LostSlot() const {
  for (int slot = 0; slot < kSegmentSlots && slot_.number_.ordinal != 0; ++slot) {
    const GroupSegment::Slot& known = group_.slots_[static_cast<size_t>(slot)];
    const uint32_t closed = group_.Header(slot).closed.load();
    if (closed == 0 || !known.busy.load() ||
        (slot_.state_ == SegmentSlot::State::kExpecting && slot == slot_.index_)) {
      continue;
    }
    const uint64_t next = known.calls.load() + 2;  // Behind the one that failed.
    const SegmentLine& line = group_.Line(slot, 0, next);
    // Earlier calls of this tag may have ended there in the same way.
    if (line.word.load() == SegmentWord(next, slot_.options_.tag) &&
        ((line.call.load() ^ slot_.number_.ordinal) & kSegmentOrdinalMask) == 0) {
      return AbortedError(
          "{} gave up a call before the {} (tag {}), which {} has begun behind it",
          closed - 1 < group_.names_.size() ? group_.names_[closed - 1] : "a member", slot_.Name(),
          slot_.options_.tag, group_.names_.front());
    }
  }
  return Status::Ok();
}

Result<bool> SegmentEntry::WentElsewhere() {
  if (elsewhere_ == nullptr) {
    elsewhere_ = slot_.owner_.Recv(group_.ranks().front(),
                                   {.tag = slot_.options_.tag, .space = ElsewhereOf(slot_.number_)},
                                   {}, true);
  }
  if (!elsewhere_->Done()) {
    return false;
  }
  HEDDLE_RETURN_IF_ERROR(elsewhere_->Wait(Now()));
  return true;
}

}  // namespace heddle::comm
