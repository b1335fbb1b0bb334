// The segment of a group on one host: its layout, which groups have one (segment_forming.cc makes
// it), and how members learn of each other's end.
#include "comm/group/segment.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/group/group.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSmallBytes = size_t{64} << 10;
/// Of all members' bulk stages of one turn: fewer members have larger ones. A large block spares
/// waits, but an urgent message on the same core waits for it.
constexpr size_t kBulkBytes = size_t{1} << 20;
/// Up to this many members small stages have their full size; beyond it the segment stays as large.
constexpr size_t kFullMembers = 8;

size_t Pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

SegmentLayout::SegmentLayout(int members) {
  const auto count = static_cast<size_t>(members);
  const size_t crowd = std::max<size_t>(1, (count + kFullMembers - 1) / kFullMembers);
  small_bytes = Pages(kSmallBytes / crowd);
  bulk_bytes = Pages(kBulkBytes / count);
  control_bytes = Pages(sizeof(SegmentSlotHeader) + count * sizeof(SegmentBlock));
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
      may_spin_(static_cast<int>(ranks_.size()) <= Cores()) {
  const MutexLock lock(mutex_);
  member_end_.resize(ranks_.size());
  foreign_.resize(ranks_.size());
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

void GroupSegment::WakeAll() {
  for (int slot = 0; slot < kSegmentSlots; ++slot) {
    WakeSleepers(Header(slot));
  }
}

void WakeSleepers(SegmentSlotHeader& header) {
  header.notification.fetch_add(1);
  ::syscall(SYS_futex, &header.notification, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
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
  broken_.store(true);
  WakeAll();
}

void GroupSegment::End(const Status& status) {
  {
    const MutexLock lock(mutex_);
    if (!end_.ok()) {
      return;
    }
    end_ = status;
  }
  broken_.store(true);
  WakeAll();
}

std::optional<Conflict> GroupSegment::FindConflict(const CallNumber& number) const {
  for (int slot = 0; number.ordinal != 0 && slot < kSegmentSlots; ++slot) {
    const uint64_t call = slots_[static_cast<size_t>(slot)].calls.load() + 1;
    const uint64_t word = SegmentWord(call, number.tag);
    for (int member = 0; member < size(); ++member) {
      const SegmentLine& line = Block(slot, member).lines[call % 2];
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

GroupSegments::GroupSegments(Group& group, std::shared_ptr<SharedRegions> regions)
    : group_(group),
      regions_(std::move(regions)) {
  const auto host_of = [](const std::string& address, bool sharing) -> std::string {
    const auto parts = ParseAddress(address);
    return parts.ok() && parts->contains("host") && (!sharing || PassesDescriptors(*parts))
               ? parts->at("host")
               : "";
  };
  const auto& members = group.options().members;
  const std::string own =
      host_of(members[static_cast<size_t>(group.options().rank)].address, false);
  for (const GroupMember& member : members) {
    hosts_.push_back(host_of(member.address, true));
    members_here_ += host_of(member.address, false) == own ? 1 : 0;
  }
}

bool GroupSegments::Matches(const Entry& entry, std::span<const int> ranks) const {
  return ranks.empty()
             ? entry.ranks.size() == hosts_.size()
             : std::equal(entry.ranks.begin(), entry.ranks.end(), ranks.begin(), ranks.end());
}

Result<std::shared_ptr<GroupSegment>> GroupSegments::Get(const CollectiveOptions& options,
                                                         const CallNumber& number) {
  const MutexLock lock(mutex_);
  for (const auto& entry : entries_) {
    if (!entry->forming && Matches(*entry, options.group)) {
      return entry->group;
    }
  }
  // What follows happens once for each group.
  std::vector<int> ranks(options.group.begin(), options.group.end());
  if (ranks.empty()) {
    ranks.resize(hosts_.size());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  const auto known = [&](int rank) { return rank >= 0 && rank < static_cast<int>(hosts_.size()); };
  if (!std::all_of(ranks.begin(), ranks.end(), known) ||
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end() ||
      std::find(ranks.begin(), ranks.end(), group_.options().rank) == ranks.end()) {
    return std::shared_ptr<GroupSegment>();  // No group at all: who exchanges messages says so.
  }
  const Deadline deadline = options.deadline.value_or(After(group_.options().operation_timeout));
  while (true) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& entry) { return entry->ranks == ranks; });
    if (found == entries_.end()) {
      break;
    }
    if (!(*found)->forming) {
      return (*found)->group;
    }
    if (Now() >= deadline) {
      return DeadlineExceededError("deadline passed while another call formed the group");
    }
    formed_.WaitUntil(mutex_, std::min(deadline, After(kLookAfter)));
    mutex_.Unlock();
    const Status look = group_.waits().Look(ranks, number);
    mutex_.Lock();
    HEDDLE_RETURN_IF_ERROR(look);
  }
  const bool may_share = ranks.size() >= 2 && ranks.size() <= kMostSharing && OnOneHost(ranks);
  auto entry = std::make_shared<Entry>(Entry{
      .ranks = std::move(ranks), .hash = number.group, .forming = may_share, .group = nullptr});
  entries_.push_back(entry);
  return may_share ? FormEntry(*entry, number, deadline) : std::shared_ptr<GroupSegment>();
}

std::optional<Conflict> GroupSegments::FindConflict(const CallNumber& number) {
  std::shared_ptr<GroupSegment> group;
  {
    const MutexLock lock(mutex_);
    for (const auto& entry : entries_) {
      group = entry->hash == number.group ? entry->group : group;
    }
  }
  return group == nullptr ? std::nullopt : group->FindConflict(number);
}

bool GroupSegments::OnOneHost(const std::vector<int>& ranks) const {
  const std::string& host = hosts_[static_cast<size_t>(ranks.front())];
  return !host.empty() && std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return hosts_[static_cast<size_t>(rank)] == host;
  });
}

void GroupSegments::MemberEnded(int rank, const Status& status, bool left) {
  const MutexLock lock(mutex_);
  members_ended_.push_back({.rank = rank, .status = status, .left = left});
  for (const auto& entry : entries_) {
    if (entry->group != nullptr) {
      entry->group->MemberEnded(rank, status, left);
    }
  }
}

void GroupSegments::End(const Status& status) {
  const MutexLock lock(mutex_);
  end_ = status;
  for (const auto& entry : entries_) {
    if (entry->group != nullptr) {
      entry->group->End(status);
    }
  }
}

}  // namespace heddle::comm
