// Which groups have a segment (segment_forming.cc makes it), and who has ended.
#include "comm/group/group_segments.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/group/group.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

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

bool GroupSegments::Matches(const Entry& entry, std::span<const int> ranks) {
  return ranks.empty()
             ? entry.everyone
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
  // The rest is done once for each group.
  std::vector<int> ranks(options.group.begin(), options.group.end());
  if (ranks.empty()) {
    ranks.resize(hosts_.size());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  if (sorted.front() < 0 || sorted.back() >= static_cast<int>(hosts_.size()) ||
      std::ranges::adjacent_find(sorted) != sorted.end() ||
      !std::ranges::binary_search(sorted, group_.options().rank)) {
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
  const bool may_share = ranks.size() >= 2 && ranks.size() <= kMaxSharing && OnOneHost(ranks);
  const bool everyone = ranks.size() == hosts_.size() && ranks == sorted;
  auto entry = std::make_shared<Entry>(Entry{.ranks = std::move(ranks),
                                             .everyone = everyone,
                                             .hash = number.group,
                                             .forming = may_share,
                                             .group = nullptr});
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
