// A collective in a group's segment: entering, waiting and giving up. The arguments for what is
// free of races stand where they are needed.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/system/unique_fd.h"
#include "comm/group/group.h"
#include "comm/group/segment.h"

namespace heddle::comm {

namespace {

/// How long a wait keeps its core, and how long it lets others run before it sleeps. A peer that is
/// further behind is not about to answer.
constexpr Duration kSpin = std::chrono::microseconds(40);
constexpr Duration kYield = std::chrono::microseconds(400);
/// Whoever gives its core away for longer gives it to others than members, and gets it back at the
/// end of their time slice; a sleeper gets it when it is woken. So for a while waits sleep at once.
constexpr Duration kLongYield = std::chrono::milliseconds(1);
constexpr Duration kSleepAtOnce = std::chrono::milliseconds(200);
/// A sleep's slices: each looks whether to go on.
constexpr Duration kSlice = std::chrono::milliseconds(20);
constexpr Duration kEntrySlice = std::chrono::milliseconds(5);
/// Whoever sees another give up waits as long for the reason, which comes over the connections.
constexpr Duration kGrace = std::chrono::milliseconds(50);
/// How long a member that gives up waits for the others' writes to its memory to end.
constexpr Duration kWriteFence = std::chrono::milliseconds(50);
/// Small calls are counted together.
constexpr int64_t kCountBytes = int64_t{1} << 20;
/// No member is this many phases ahead: its counter has been overwritten.
constexpr uint64_t kPhaseLimit = uint64_t{1} << 32;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// News of one call must not meet another's of the same tag, which may already have begun.
uint64_t ElsewhereOf(const CallNumber& number) {
  return kSegmentElsewhere | (number.ordinal & kSegmentOrdinalMask);
}

/// Whether nothing of a process is left but its exit code. When in doubt, such as for a number that
/// another process has got since, or one that means nothing here: no.
bool HasEnded(pid_t process) {
  if (process <= 0) {
    return false;
  }
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0U)));
  if (!handle.valid()) {
    return errno == ESRCH;
  }
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 1 && (ended.revents & POLLIN) != 0;
}

void Sleep(SegmentSlotHeader& header, uint32_t notification, Duration slice) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = slice.count()};
  // However it ends, the caller looks again.
  ::syscall(SYS_futex, &header.notification, FUTEX_WAIT, notification, &timeout, nullptr, 0);
}

}  // namespace

SegmentCall::SegmentCall(Group& owner,
                         GroupSegment& group,
                         const CollectiveOptions& options,
                         const CallNumber& number)
    : owner_(owner),
      group_(group),
      options_(options),
      number_(number) {}

SegmentCall::~SegmentCall() {
  if (elsewhere_ != nullptr && !elsewhere_->Done()) {
    elsewhere_->Cancel(CancelledError("the call is in the segment"));
  }
  if (entry_ == Entry::kExpecting) {
    Retract();
  }
  if (entry_ == Entry::kInside) {
    GroupSegment::Slot& slot = group_.slots_[static_cast<size_t>(slot_)];
    slot.chosen[call_ % 2].store(SegmentWord(call_, options_.tag));
    slot.calls.store(call_);
    slot.busy.store(false);
  }
}

SegmentLine& SegmentCall::LineOf(int slot, int member, uint64_t call) const {
  return group_.Block(slot, member).lines[call % 2];
}

bool SegmentCall::Hold(int slot) {
  std::atomic<bool>& busy = group_.slots_[static_cast<size_t>(slot)].busy;
  if (busy.load() || busy.exchange(true)) {
    return false;
  }
  slot_ = slot;
  call_ = group_.slots_[static_cast<size_t>(slot)].calls.load() + 1;
  return true;
}

// The line of this call is free: whoever enters call c has completed call c - 1, which everyone had
// entered, and so had completed call c - 2, whose line this was.
void SegmentCall::Publish(int slot) {
  SegmentLine& line = LineOf(slot, position(), call_);
  line.shape.store(shape_, std::memory_order_relaxed);
  line.call.store(SegmentCallWord(number_),
                  std::memory_order_release);  // For GroupSegment::FindConflict.
  if (data_.size() > line.data.size()) {
    std::memcpy(group_.Stages(slot, position()) + (call_ % 2) * layout().small_bytes, data_.data(),
                data_.size());
  } else if (!data_.empty()) {
    std::memcpy(line.data.data(), data_.data(), data_.size());
  } else {
    std::memcpy(line.data.data(), &place_, sizeof(place_));
  }
  line.word.store(SegmentWord(call_, options_.tag));
  Notify();
}

// Takes back an announcement in a slot that the first member has not chosen for this call: nobody
// has read what was announced, and nobody will, because the next call with this tag begins after
// this one, by when the word is gone. If the first member chose the slot at the very moment when
// this member gives up, then others may be reading: the slot is not used again.
void SegmentCall::Retract() {
  LineOf(slot_, position(), call_).word.store(0);
  if (LineOf(slot_, 0, call_).word.load() == SegmentWord(call_, options_.tag)) {
    entry_ = Entry::kInside;
    Fail(Status::Ok()).IgnoreError("the caller has its own error");
    return;
  }
  group_.slots_[static_cast<size_t>(slot_)].busy.store(false);
  entry_ = Entry::kOutside;
}

const std::byte* SegmentCall::SmallData(int member) const {
  if (member == position()) {
    return data_.data();
  }
  const SegmentLine& line = LineOf(slot_, member, call_);
  return data_.size() > line.data.size()
             ? group_.Stages(slot_, member) + (call_ % 2) * layout().small_bytes
             : line.data.data();
}

std::byte* SegmentCall::Stage(int member, int64_t turn) const {
  return group_.Stages(slot_, member) + 2 * layout().small_bytes +
         static_cast<size_t>(turn % 2) * layout().bulk_bytes;
}

Result<bool> SegmentCall::EnterSmall(uint64_t shape, std::span<const std::byte> data) {
  shape_ = shape;
  data_ = data;
  return Enter();
}

Result<bool> SegmentCall::Enter() {
  if (group_.broken_.load()) {
    const Status failure = Failure(-1);
    if (!failure.ok()) {
      return failure;
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool inside, position() == 0 ? EnterFirst() : Follow());
  if (!inside) {
    return false;
  }
  const uint64_t word = SegmentWord(call_, options_.tag);
  int unlike = -1;
  for (int member = 0; member < size(); ++member) {
    const SegmentLine& line = LineOf(slot_, member, call_);
    HEDDLE_RETURN_IF_ERROR(Wait(
        member, [&] { return line.word.load() == word; }, kSlice));
    if (line.shape.load(std::memory_order_relaxed) != shape_) {
      unlike = member;
    }
  }
  if (unlike >= 0) {
    return ShapesDiffer(unlike);
  }
  all_inside_ = true;
  return true;
}

// Everyone names the same two: the first member, and the first whose call is unlike its call.
Status SegmentCall::ShapesDiffer(int member) const {
  const uint64_t shape = LineOf(slot_, 0, call_).shape.load();
  for (int other = size() - 1; other > 0; --other) {
    member = LineOf(slot_, other, call_).shape.load() != shape ? other : member;
  }
  const auto signature = [&](int of) {
    return static_cast<uint32_t>(LineOf(slot_, of, call_).call.load() >> kSegmentOrdinalBits);
  };
  return DisagreementOf(
      owner_, group_.ranks_.front(), signature(0),
      {.rank = group_.ranks_[static_cast<size_t>(member)], .signature = signature(member)});
}

// The first member takes any slot that is free here: it is free everywhere, because a call ends
// only after all have entered it.
Result<bool> SegmentCall::EnterFirst() {
  for (int slot = 0; slot < kSegmentSlots; ++slot) {
    if (Hold(slot)) {
      entry_ = Entry::kInside;
      Publish(slot);
      return true;
    }
  }
  for (int member = 1; member < size(); ++member) {
    // Nothing waits for it here: an error is one of the messages that follow, too.
    owner_.Send(group_.ranks()[static_cast<size_t>(member)],
                {.tag = options_.tag, .space = ElsewhereOf(number_)}, {}, true);
  }
  return false;
}

// Announces the call where it is expected and waits until the first member has chosen a slot.
Result<bool> SegmentCall::Follow() {
  const int expected = group_.expected_slot_.load(std::memory_order_relaxed);
  if (Hold(expected)) {
    entry_ = Entry::kExpecting;
    Publish(expected);
  }
  bool went_elsewhere = false;
  Status failure;
  const Status status = Wait(
      0,
      [&] {
        if (Join()) {
          return true;
        }
        if (deadline_.has_value()) {  // It takes long.
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
    if (entry_ == Entry::kExpecting) {
      Retract();
    }
    return false;
  }
  group_.expected_slot_.store(slot_, std::memory_order_relaxed);
  return true;
}

// One look for the slot that the first member chose.
bool SegmentCall::Join() {
  for (int i = 0; i < kSegmentSlots; ++i) {
    // The expected slot first.
    const int slot = entry_ == Entry::kExpecting ? (slot_ + i) % kSegmentSlots : i;
    GroupSegment::Slot& known = group_.slots_[static_cast<size_t>(slot)];
    const uint64_t call = known.calls.load() + 1;
    const uint64_t word = LineOf(slot, 0, call).word.load();
    const bool chosen = word == SegmentWord(call, options_.tag);
    if (entry_ == Entry::kExpecting && slot == slot_) {
      if (chosen) {
        entry_ = Entry::kInside;
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
    if (entry_ == Entry::kExpecting) {
      Retract();
    }
    // Another call of this process may still expect this slot; it moves as soon as it looks.
    if (Hold(slot)) {
      if (call_ == call) {
        entry_ = Entry::kInside;
        Publish(slot);
        return true;
      }
      known.busy.store(false);
    }
  }
  return false;
}

// A call that failed here and not at the first member leaves a slot that this member cannot use and
// the first one can: it chooses it for the next call, and this member could not tell it otherwise.
Status SegmentCall::LostSlot() const {
  for (int slot = 0; slot < kSegmentSlots && number_.ordinal != 0; ++slot) {
    const GroupSegment::Slot& known = group_.slots_[static_cast<size_t>(slot)];
    const uint32_t closed = group_.Header(slot).closed.load();
    if (closed == 0 || !known.busy.load() || (entry_ == Entry::kExpecting && slot == slot_)) {
      continue;
    }
    const uint64_t next = known.calls.load() + 2;  // Behind the one that failed.
    const SegmentLine& line = LineOf(slot, 0, next);
    // Its tag's calls before this one may have ended there in the same way.
    if (line.word.load() == SegmentWord(next, options_.tag) &&
        ((line.call.load() ^ number_.ordinal) & kSegmentOrdinalMask) == 0) {
      return AbortedError(
          "{} gave up a call before the {} (tag {}), which {} has begun behind it",
          closed - 1 < group_.names_.size() ? group_.names_[closed - 1] : "a member", Name(),
          options_.tag, group_.names_.front());
    }
  }
  return Status::Ok();
}

Result<bool> SegmentCall::WentElsewhere() {
  if (elsewhere_ == nullptr) {
    elsewhere_ = owner_.Recv(group_.ranks().front(),
                             {.tag = options_.tag, .space = ElsewhereOf(number_)}, {}, true);
  }
  if (!elsewhere_->Done()) {
    return false;
  }
  HEDDLE_RETURN_IF_ERROR(elsewhere_->Wait(Now()));
  return true;
}

void SegmentCall::Notify() const {
  // The announcement is stored before the sleepers are read, both in sequential order; a sleeper
  // counts itself before its last look. So one of the two sees the other.
  SegmentSlotHeader& header = group_.Header(slot_);
  if (header.sleepers.load() != 0) {
    WakeSleepers(header);
  }
}

template <typename Ready>
Status SegmentCall::Wait(int member, const Ready& ready, Duration slice) {
  if (ready()) {
    return Status::Ok();
  }
  if (group_.may_spin_) {
    const Time until = After(kSpin);
    for (int looks = 1; looks % 64 != 0 || (Now() < until && !group_.broken_.load()); ++looks) {
      Pause();
      if (ready()) {
        return Status::Ok();
      }
    }
  }
  const Time began = Now();
  for (Time now = began;
       now - began < kYield && now >= group_.sleep_until_.load() && !group_.broken_.load();) {
    ::sched_yield();
    if (ready()) {
      return Status::Ok();
    }
    const Time before = std::exchange(now, Now());
    if (now - before > kLongYield) {
      group_.sleep_until_.store(now + kSleepAtOnce);
    }
  }
  if (!deadline_.has_value()) {
    deadline_ = options_.deadline.value_or(began + owner_.options().operation_timeout);
  }
  Time look_at = began + kLookAfter;
  while (true) {
    const Status failure = Failure(member);
    if (!failure.ok()) {
      // What the member did before it ended still counts.
      return ready() ? Status::Ok() : Fail(failure);
    }
    const Time now = Now();
    if (now >= *deadline_) {
      return Fail(DeadlineExceededError("deadline passed while waiting for {} in the {} (tag {}){}",
                                        group_.names_[static_cast<size_t>(member)], Name(),
                                        options_.tag, HeldUpBy(member)));
    }
    if (!all_inside_ && now >= look_at) {
      look_at = now + kLookAfter;
      const Status look = owner_.waits().Look(group_.ranks_, number_);
      if (!look.ok()) {  // The others are told why before the slot is closed to them.
        return Fail(owner_.waits().Conclude(look));
      }
    }
    // A member without a slot yet sleeps at the one it expects; its slices bound what it misses.
    SegmentSlotHeader& header = group_.Header(slot_);
    const uint32_t notification = header.notification.load();
    header.sleepers.fetch_add(1);
    const bool is_ready = ready();
    if (!is_ready) {
      Sleep(header, notification, std::min(slice, *deadline_ - now));
    }
    header.sleepers.fetch_sub(1);
    if (is_ready || ready()) {
      return Status::Ok();
    }
  }
}

// The member waited for may itself wait; all wait in the end for whoever has completed the fewest
// phases of the slot.
std::string SegmentCall::HeldUpBy(int member) const {
  const auto phase = [&](int other) { return group_.Block(slot_, other).phase.load(); };
  int last = member;
  for (int other = 0; other < size(); ++other) {
    if (other != position() && phase(other) < phase(last)) {
      last = other;
    }
  }
  return last == member ? ""
                        : fmt::format("; {} holds it up", group_.names_[static_cast<size_t>(last)]);
}

// Why not to wait for `member` (-1: for nobody) any longer.
Status SegmentCall::Failure(int member) {
  if (group_.broken_.load()) {
    const MutexLock lock(group_.mutex_);
    if (!group_.end_.ok()) {
      return group_.end_;
    }
    if (!group_.loss_.ok()) {
      return group_.loss_;
    }
    if (member >= 0 && !group_.member_end_[static_cast<size_t>(member)].ok()) {
      return group_.member_end_[static_cast<size_t>(member)];
    }
  }
  if (entry_ != Entry::kInside) {
    return Status::Ok();
  }
  const uint32_t closed = group_.Header(slot_).closed.load();
  if (closed == 0) {
    return Status::Ok();
  }
  const Time now = Now();
  closed_since_ = closed_since_.value_or(now);
  if (now - *closed_since_ < kGrace) {
    return Status::Ok();
  }
  const size_t who = closed - 1;
  return AbortedError("{} gave up the {} (tag {})",
                      who < group_.names_.size() ? group_.names_[who] : "a member", Name(),
                      options_.tag);
}

Status SegmentCall::Interrupted() {
  const Status failure =
      group_.broken_.load() || group_.Header(slot_).closed.load() != 0 ? Failure(-1) : Status::Ok();
  return failure.ok() ? failure : Fail(failure);
}

// Ends this call here and, for those who are in it, everywhere.
Status SegmentCall::Fail(const Status& status) {
  if (entry_ == Entry::kInside) {
    entry_ = Entry::kFailed;
    SegmentSlotHeader& header = group_.Header(slot_);
    uint32_t open = 0;
    header.closed.compare_exchange_strong(open, static_cast<uint32_t>(position()) + 1);
    WakeSleepers(header);
    FenceLateWrites();
  }
  return status;
}

// A member writes to others' memory only between `writing` = 1 and 0, and looks at `closed` after
// the first; here `closed` was set before `writing` is read. So whoever is not seen writing will
// not write, and a process that has ended has no memory any more. That its connection is lost says
// less: a living process may have lost it to damage. One that is stopped in the middle may go on at
// any time: its mapping then ends in pages that are no longer ours.
void SegmentCall::FenceLateWrites() {
  if (exposed_.empty() || region_ == nullptr) {
    return;
  }
  const Time until = After(kWriteFence);
  const auto writes = [&](int member) {
    return member != position() && group_.Block(slot_, member).writing.load() != 0 &&
           !HasEnded(group_.channels_[static_cast<size_t>(member)]->peer_process());
  };
  for (int member = 0; member < size(); ++member) {
    while (writes(member)) {
      if (Now() >= until) {
        const Status status = group_.regions_->Privatise(*region_, exposed_);
        HEDDLE_CHECK(status.ok(), "{} may still write to a shared buffer: {}",
                     group_.names_[static_cast<size_t>(member)], status.message());
        return;
      }
      ::sched_yield();
    }
  }
}

Status SegmentCall::BeginWriting() {
  group_.Block(slot_, position()).writing.store(1);
  const uint32_t closed = group_.Header(slot_).closed.load();
  if (closed == 0) {
    return Status::Ok();
  }
  EndWriting();
  return ReasonOfClose(closed);
}

// Whoever closed the slot is about to tell why.
Status SegmentCall::ReasonOfClose(uint32_t closed) {
  return Wait(
      static_cast<int>(std::min<uint32_t>(closed, static_cast<uint32_t>(size()))) - 1,
      [] { return false; }, kSlice);
}

Status SegmentCall::ConfirmReads() {
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint32_t closed = group_.Header(slot_).closed.load();
  return closed == 0 ? Status::Ok() : ReasonOfClose(closed);
}

void SegmentCall::EndWriting() {
  group_.Block(slot_, position()).writing.store(0);
}

void SegmentCall::Arrive() {
  GroupSegment::Slot& slot = group_.slots_[static_cast<size_t>(slot_)];
  group_.Block(slot_, position()).phase.store(++slot.phase);
  Notify();
}

Status SegmentCall::WaitFor(int member, int64_t behind) {
  const uint64_t wanted =
      group_.slots_[static_cast<size_t>(slot_)].phase - static_cast<uint64_t>(behind);
  const std::atomic<uint64_t>& phase = group_.Block(slot_, member).phase;
  uint64_t ahead = 0;
  HEDDLE_RETURN_IF_ERROR(Wait(
      member,
      [&] {
        ahead = phase.load() - wanted;
        return static_cast<int64_t>(ahead) >= 0;
      },
      kSlice));
  if (ahead > kPhaseLimit) {
    return Fail(DataLossError("{} has overwritten the segment of the group",
                              group_.names_[static_cast<size_t>(member)]));
  }
  return Status::Ok();
}

Status SegmentCall::WaitAll(int64_t behind) {
  for (int member = 0; member < size(); ++member) {
    if (member != position()) {
      HEDDLE_RETURN_IF_ERROR(WaitFor(member, behind));
    }
  }
  return Status::Ok();
}

void SegmentCall::Count(int member, int64_t sent, int64_t received) {
  if (member != position()) {
    group_.channels_[static_cast<size_t>(member)]->CountShared(sent, received);
  }
}

void SegmentCall::CountSmall(int64_t bytes) {
  int64_t& uncounted = group_.slots_[static_cast<size_t>(slot_)].uncounted;
  uncounted += bytes;
  if (uncounted >= kCountBytes) {
    for (int member = 0; member < size(); ++member) {
      Count(member, uncounted, uncounted);
    }
    uncounted = 0;
  }
}

Status SegmentCall::Pace(int64_t sent, int64_t received) {
  const ChannelOptions& link =
      group_.channels_[position() == 0 ? 1 : 0]->options();  // Of this worker, whoever the peer.
  if (!link.outgoing->limited()) {
    return Status::Ok();
  }
  const Time began = Now();
  link.outgoing->Charge(static_cast<size_t>(sent), began);
  link.incoming->Charge(static_cast<size_t>(received), began);
  const auto paid = [&] {
    const Time now = Now();
    return std::max(link.outgoing->ReadyAt(TrafficClass::kBulk, now),
                    link.incoming->ReadyAt(TrafficClass::kBulk, now)) <= now;
  };
  return Wait(position(), paid, std::chrono::microseconds(500));
}

}  // namespace heddle::comm
