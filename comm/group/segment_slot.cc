// Waiting and giving up. The arguments for what is free of races stand where they are needed.
#include "comm/group/segment_slot.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/system/unique_fd.h"
#include "comm/group/group.h"

namespace heddle::comm {

namespace {

/// How long a wait keeps its core, and how long it lets others run before it sleeps. A peer that is
/// further behind is not about to answer.
constexpr Duration kSpin = std::chrono::microseconds(40);
constexpr Duration kYield = std::chrono::microseconds(400);
/// How long a member that sees another give up waits for the reason, which comes over the
/// connections.
constexpr Duration kGrace = std::chrono::milliseconds(50);
/// How long a member that gives up waits for the others' writes to its memory to end.
constexpr Duration kWriteFence = std::chrono::milliseconds(50);
/// A member that seems to be this many phases ahead has overwritten its counter.
constexpr uint64_t kPhaseLimit = uint64_t{1} << 32;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
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

SegmentSlot::SegmentSlot(Group& owner,
                         GroupSegment& group,
                         const CollectiveOptions& options,
                         const CallNumber& number)
    : owner_(owner),
      group_(group),
      options_(options),
      number_(number) {}

SegmentSlot::~SegmentSlot() {
  if (state_ == State::kInside) {
    known().chosen[call_ % 2].store(Word());
    known().calls.store(call_);
    known().busy.store(false);
  }
}

// Waits by spinning and yielding. Returns whether the condition holds now.
bool SegmentSlot::WaitAwake(const SegmentCondition& ready) const {
  if (group_.may_spin_) {
    const Time until = After(kSpin);
    for (int looks = 1; looks % 64 != 0 || (Now() < until && !group_.broken_.load()); ++looks) {
      Pause();
      if (ready()) {
        return true;
      }
    }
  }
  const Time began = Now();
  for (Time now = began;
       now - began < kYield && group_.yield_gate_.IsOpen(now) && !group_.broken_.load();) {
    ::sched_yield();
    if (ready()) {
      return true;
    }
    const Time before = std::exchange(now, Now());
    group_.yield_gate_.Yielded(before, now);
  }
  return false;
}

Status SegmentSlot::WaitLong(int member, const SegmentCondition& ready, Duration slice) {
  const Time began = Now();
  if (WaitAwake(ready)) {
    return Status::Ok();
  }
  if (!deadline_.has_value()) {
    deadline_ = options_.deadline.value_or(began + owner_.options().operation_timeout);
  }
  const AwaitedPeers::Wait wait(owner_.awaited(), group_.ranks_[static_cast<size_t>(member)]);
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
                                        options_.tag, group_.HeldUpBy(index_, member)));
    }
    if (!all_inside_ && now >= look_at) {
      look_at = now + kLookAfter;
      const Status look = owner_.waits().Look(group_.ranks_, number_);
      if (!look.ok()) {  // The others are told why before the slot is closed to them.
        return Fail(owner_.waits().Conclude(look));
      }
    }
    // A member without a slot yet sleeps at the one it expects; its slices bound what it misses.
    SegmentSlotHeader& header = group_.Header(index_);
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

// The reason not to wait for `member` (-1: for no particular one) any longer; ok: there is none.
Status SegmentSlot::Failure(int member) {
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
  if (state_ != State::kInside) {
    return Status::Ok();
  }
  const uint32_t closed = group_.Header(index_).closed.load();
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

Status SegmentSlot::Interrupted() {
  const Status failure = group_.broken_.load() || group_.Header(index_).closed.load() != 0
                             ? Failure(-1)
                             : Status::Ok();
  return failure.ok() ? failure : Fail(failure);
}

// Ends this call here and, for those who are in it, everywhere.
Status SegmentSlot::Fail(const Status& status) {
  if (state_ == State::kInside) {
    state_ = State::kFailed;
    SegmentSlotHeader& header = group_.Header(index_);
    uint32_t open = 0;
    header.closed.compare_exchange_strong(open, static_cast<uint32_t>(position()) + 1);
    WakeSleepers(header);
    FenceLateWrites();
  }
  return status;
}

// A member writes to others' memory only between `writing` = 1 and 0, and reads `closed` after it
// has set 1; here `closed` was set before `writing` is read. So a member that is not seen writing
// will not write, and a process that has ended cannot. A lost connection is no proof of the end: a
// living process may have lost it. A process that is stopped while it writes may go on at any time;
// its mapping then leads to pages that this process no longer uses.
void SegmentSlot::FenceLateWrites() {
  const auto region = exposed_.empty() ? nullptr : group_.regions_->Find(exposed_);
  if (region == nullptr) {
    return;
  }
  const Time until = After(kWriteFence);
  const auto writes = [&](int member) {
    return member != position() && BlockOf(member).writing.load() != 0 &&
           !HasEnded(group_.channels_[static_cast<size_t>(member)]->peer_process());
  };
  for (int member = 0; member < size(); ++member) {
    while (writes(member)) {
      if (Now() >= until) {
        const Status status = group_.regions_->Privatise(*region, exposed_);
        HEDDLE_CHECK(status.ok(), "{} may still write to a shared buffer: {}",
                     group_.names_[static_cast<size_t>(member)], status.message());
        return;
      }
      ::sched_yield();
    }
  }
}

Status SegmentSlot::BeginWriting() {
  BlockOf(position()).writing.store(1);
  const uint32_t closed = group_.Header(index_).closed.load();
  if (closed == 0) {
    return Status::Ok();
  }
  EndWriting();
  return ReasonOfClose(closed);
}

// The member that closed the slot is about to report why.
Status SegmentSlot::ReasonOfClose(uint32_t closed) {
  return Wait(
      static_cast<int>(std::min<uint32_t>(closed, static_cast<uint32_t>(size()))) - 1,
      [] { return false; }, kSegmentSlice);
}

Status SegmentSlot::ConfirmReads() {
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint32_t closed = group_.Header(index_).closed.load();
  return closed == 0 ? Status::Ok() : ReasonOfClose(closed);
}

void SegmentSlot::EndWriting() {
  BlockOf(position()).writing.store(0);
}

void SegmentSlot::Arrive() {
  BlockOf(position()).phase.store(++known().phase);
  group_.Notify(index_);
}

Status SegmentSlot::WaitFor(int member, int64_t behind) {
  const uint64_t wanted = known().phase - static_cast<uint64_t>(behind);
  const std::atomic<uint64_t>& phase = BlockOf(member).phase;
  uint64_t ahead = 0;
  HEDDLE_RETURN_IF_ERROR(Wait(
      member,
      [&] {
        ahead = phase.load() - wanted;
        return static_cast<int64_t>(ahead) >= 0;
      },
      kSegmentSlice));
  if (ahead > kPhaseLimit) {
    return Fail(DataLossError("{} has overwritten the segment of the group",
                              group_.names_[static_cast<size_t>(member)]));
  }
  return Status::Ok();
}

Status SegmentSlot::WaitAll(int64_t behind) {
  for (int member = 0; member < size(); ++member) {
    if (member != position()) {
      HEDDLE_RETURN_IF_ERROR(WaitFor(member, behind));
    }
  }
  return Status::Ok();
}

}  // namespace heddle::comm
