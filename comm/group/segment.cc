#include "comm/group/segment.h"

#include <algorithm>
#include <utility>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

namespace heddle::comm {

namespace {

constexpr size_t kPage = 4096;

}  // namespace

SegmentLayout::SegmentLayout(int members) {
  const auto count = static_cast<size_t>(members);
  const SegmentStages stages = StagesOf(members);
  small_bytes = stages.small_bytes;
  bulk_bytes = stages.bulk_bytes;
  const size_t control = sizeof(SegmentSlotHeader) + count * sizeof(SegmentBlock);
  control_bytes = (control + kPage - 1) / kPage * kPage;
  slot_bytes = control_bytes + count * 2 * (small_bytes + bulk_bytes);
  total_bytes = kSegmentSlots * slot_bytes;
}

GroupSegment::GroupSegment(std::vector<int> ranks,
                           int position,
                           std::vector<std::string> names,
                           std::vector<std::shared_ptr<Channel>> channels,
                           std::shared_ptr<SharedRegions> regions,
                           Mapping segment)
    : ranks_(std::move(ranks)),
      position_(position),
      names_(std::move(names)),
      channels_(std::move(channels)),
      regions_(std::move(regions)),
      segment_(std::move(segment)),
      layout_(static_cast<int>(ranks_.size())),
      may_spin_(static_cast<int>(ranks_.size()) <= Cores()),
      member_regions_(static_cast<int>(ranks_.size())) {
  const MutexLock lock(mutex_);
  member_end_.resize(ranks_.size());
}

SegmentSlotHeader& GroupSegment::Header(int slot) const {
  return *reinterpret_cast<SegmentSlotHeader*>(segment_.base() +
                                               static_cast<size_t>(slot) * layout_.slot_bytes);
}

SegmentBlock& GroupSegment::Block(int slot, int member) const {
  return *reinterpret_cast<SegmentBlock*>(
      segment_.base() + static_cast<size_t>(slot) * layout_.slot_bytes + sizeof(SegmentSlotHeader) +
      static_cast<size_t>(member) * sizeof(SegmentBlock));
}

std::byte* GroupSegment::Stages(int slot, int member) const {
  return segment_.base() + static_cast<size_t>(slot) * layout_.slot_bytes + layout_.control_bytes +
         static_cast<size_t>(member) * 2 * (layout_.small_bytes + layout_.bulk_bytes);
}

void GroupSegment::Notify(int slot) const {
  // The announcement is stored before the sleepers are read, both in sequential order; a sleeper
  // counts itself before its last look. So one of the two sees the other.
  SegmentSlotHeader& header = Header(slot);
  if (header.sleepers.load() != 0) {
    WakeSleepers(header);
  }
}

void WakeSleepers(SegmentSlotHeader& header) {
  header.notification.fetch_add(1);
  ::syscall(SYS_futex, &header.notification, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void GroupSegment::Break() {
  broken_.store(true);
  for (int slot = 0; slot < kSegmentSlots; ++slot) {
    WakeSleepers(Header(slot));
  }
}

// The member that is waited for may itself wait; in the end all wait for the member that has
// completed the fewest phases of the slot.
std::string GroupSegment::HeldUpBy(int slot, int member) const {
  const auto phase = [&](int other) { return Block(slot, other).phase.load(); };
  int last = member;
  for (int other = 0; other < size(); ++other) {
    if (other != position_ && phase(other) < phase(last)) {
      last = other;
    }
  }
  return last == member ? "" : fmt::format("; {} holds it up", names_[static_cast<size_t>(last)]);
}

void GroupSegment::MemberEnded(int rank, const Status& status, bool left) {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found == ranks_.end()) {
    return;
  }
  const auto member = static_cast<size_t>(found - ranks_.begin());
  {
    const MutexLock lock(mutex_);
    if (!member_end_[member].ok()) {
      return;
    }
    member_end_[member] = status;
    if (!left && loss_.ok()) {
      loss_ = status;
    }
  }
  Break();
}

void GroupSegment::End(const Status& status) {
  {
    const MutexLock lock(mutex_);
    if (!end_.ok()) {
      return;
    }
    end_ = status;
  }
  Break();
}

std::optional<Conflict> GroupSegment::FindConflict(const CallNumber& number) const {
  for (int slot = 0; number.ordinal != 0 && slot < kSegmentSlots; ++slot) {
    const uint64_t call = slots_[static_cast<size_t>(slot)].calls.load() + 1;
    const uint64_t word = SegmentWord(call, number.tag);
    for (int member = 0; member < size(); ++member) {
      const SegmentLine& line = Line(slot, member, call);
      if (member == position_ || line.word.load() != word) {
        continue;
      }
      const uint64_t announced = line.call.load(std::memory_order_acquire);
      // It may have taken the call back and announced another one here meanwhile: what such an
      // announcement stores is seen after its word 0.
      if (((announced ^ number.ordinal) & kSegmentOrdinalMask) == 0 &&
          announced >> kSegmentOrdinalBits != SignatureOf(number.space) &&
          line.word.load() == word) {
        return Conflict{.rank = ranks_[static_cast<size_t>(member)],
                        .signature = static_cast<uint32_t>(announced >> kSegmentOrdinalBits)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace heddle::comm
