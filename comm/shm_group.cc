// The segment of a group on one host: its layout, how its members form it, and how they learn of
// each other's end. The first member makes the segment and hands it to the others over the local
// sockets that their handshakes have authenticated; each step is agreed, so that either all of them
// use it or none.
#include "comm/shm_group.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "comm/collective.h"
#include "comm/group.h"
#include "comm/transport.h"

namespace heddle::comm {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSmallBytes = size_t{64} << 10;
constexpr size_t kBulkBytes = size_t{256} << 10;
/// Up to this many members slots have their full size; beyond it the segment stays as large.
constexpr size_t kFullMembers = 8;

size_t Pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

int Cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

ShmLayout::ShmLayout(int members) {
  const auto count = static_cast<size_t>(members);
  const size_t crowd = std::max<size_t>(1, (count + kFullMembers - 1) / kFullMembers);
  small_bytes = Pages(kSmallBytes / crowd);
  bulk_bytes = Pages(kBulkBytes / crowd);
  control_bytes = Pages(sizeof(ShmLaneHeader) + count * sizeof(ShmBlock));
  lane_bytes = control_bytes + count * 2 * (small_bytes + bulk_bytes);
  total_bytes = kShmLanes * lane_bytes;
}

ShmGroup::ShmGroup(std::vector<int> ranks,
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

ShmLaneHeader& ShmGroup::Header(int lane) const {
  return *reinterpret_cast<ShmLaneHeader*>(segment_.base() +
                                           static_cast<size_t>(lane) * layout_.lane_bytes);
}

ShmBlock& ShmGroup::Block(int lane, int member) const {
  return *reinterpret_cast<ShmBlock*>(
      segment_.base() + static_cast<size_t>(lane) * layout_.lane_bytes + sizeof(ShmLaneHeader) +
      static_cast<size_t>(member) * sizeof(ShmBlock));
}

std::byte* ShmGroup::Slots(int lane, int member) const {
  return segment_.base() + static_cast<size_t>(lane) * layout_.lane_bytes + layout_.control_bytes +
         static_cast<size_t>(member) * 2 * (layout_.small_bytes + layout_.bulk_bytes);
}

void ShmGroup::WakeAll() {
  for (int lane = 0; lane < kShmLanes; ++lane) {
    ShmWake(Header(lane));
  }
}

void ShmWake(ShmLaneHeader& header) {
  header.bell.fetch_add(1);
  ::syscall(SYS_futex, &header.bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void ShmGroup::MemberEnded(int rank, const Status& status, bool left) {
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
    // The kernel closes a dead process' sockets after it has taken its memory away.
    if (!left && status.code() != StatusCode::kAborted) {
      lost_ |= uint64_t{1} << member;
    }
  }
  broken_.store(true);
  WakeAll();
}

void ShmGroup::End(const Status& status) {
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

ShmGroups::ShmGroups(Group& group, std::shared_ptr<SharedRegions> regions)
    : group_(group),
      regions_(std::move(regions)) {
  for (const GroupMember& member : group.options().members) {
    const auto parts = ParseAddress(member.address);
    const bool offers = parts.ok() && parts->contains("shm") && parts->contains("host");
    hosts_.push_back(offers ? parts->at("host") : "");
  }
}

bool ShmGroups::Matches(const Entry& entry, std::span<const int> ranks) const {
  return ranks.empty()
             ? entry.ranks.size() == hosts_.size()
             : std::equal(entry.ranks.begin(), entry.ranks.end(), ranks.begin(), ranks.end());
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::Get(const CollectiveOptions& options) {
  {
    const MutexLock lock(mutex_);
    for (const auto& entry : entries_) {
      if (!entry->forming && Matches(*entry, options.group)) {
        return entry->group;
      }
    }
  }
  // Also checks the group; what follows happens once for each.
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(group_, options));
  if (call->size() < 2 || call->size() > kMostSharing || !OnOneHost(call->ranks())) {
    const MutexLock lock(mutex_);
    entries_.push_back(
        std::make_shared<Entry>(Entry{.ranks = call->ranks(), .forming = false, .group = nullptr}));
    return std::shared_ptr<ShmGroup>();
  }
  return FormEntry(call->ranks(), options);
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::FormEntry(const std::vector<int>& ranks,
                                                       const CollectiveOptions& options) {
  const Deadline deadline = options.deadline.value_or(After(group_.options().operation_timeout));
  auto entry = std::make_shared<Entry>();
  {
    const MutexLock lock(mutex_);
    while (true) {
      const auto found = std::find_if(entries_.begin(), entries_.end(),
                                      [&](const auto& other) { return other->ranks == ranks; });
      if (found == entries_.end()) {
        break;
      }
      if (!(*found)->forming) {
        return (*found)->group;
      }
      if (Now() >= deadline) {
        return DeadlineExceededError("deadline passed while another call formed the group");
      }
      formed_.WaitUntil(mutex_, deadline);
    }
    entry->ranks = ranks;
    entries_.push_back(entry);
  }
  // The group's own number instead of a call's tag: whichever calls come first, they meet here.
  const CollectiveOptions forming{
      .group = ranks, .tag = Hash64(std::as_bytes(std::span(ranks))), .deadline = deadline};
  Result<std::shared_ptr<ShmGroup>> group = std::shared_ptr<ShmGroup>();
  if (auto call = Collective::Begin(group_, forming); !call.ok()) {
    group = call.status();
  } else {
    group = (*call)->position() == 0 ? Lead(**call) : Join(**call);
  }
  const MutexLock lock(mutex_);
  entry->forming = false;
  if (group.ok() && *group != nullptr) {
    entry->group = *group;
    for (const Ended& ended : members_ended_) {
      entry->group->MemberEnded(ended.rank, ended.status, ended.left);
    }
    if (!end_.ok()) {
      entry->group->End(end_);
    }
  }
  formed_.NotifyAll();
  return group;
}

bool ShmGroups::OnOneHost(const std::vector<int>& ranks) const {
  const std::string& host = hosts_[static_cast<size_t>(ranks.front())];
  return !host.empty() && std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return hosts_[static_cast<size_t>(rank)] == host;
  });
}

// The pairs of this member; the others speak for theirs. A worker with an emulated link takes no
// short cut around it.
bool ShmGroups::SharesWithAll(const std::vector<int>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    if (rank == group_.options().rank) {
      return true;
    }
    const auto channel = group_.ChannelOf(rank);
    return channel.ok() && (*channel)->transport() == "shm" &&
           !(*channel)->options().outgoing->limited();
  });
}

namespace {

template <typename T>
std::span<std::byte> Raw(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Descriptors of segments and of members' regions are told apart by this bit.
constexpr uint64_t kSegmentNumber = uint64_t{1} << 63;

}  // namespace

std::shared_ptr<ShmGroup> ShmGroups::Make(const Collective& call, Mapping segment) const {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<Channel>> channels;
  for (const int rank : call.ranks()) {
    names.push_back(group_.options().members[static_cast<size_t>(rank)].name);
    const auto channel = group_.ChannelOf(rank);
    channels.push_back(channel.ok() ? *channel : nullptr);
  }
  return std::make_shared<ShmGroup>(call.ranks(), call.position(), std::move(names),
                                    std::move(channels), regions_, std::move(segment));
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::Lead(Collective& call) {
  const int members = call.size();
  std::vector<uint32_t> answers(static_cast<size_t>(members), 1);
  Status failure;
  // Everyone's answer; a member that is not connected to this one has its own way to know.
  const auto gather = [&](Phase phase) {
    std::vector<Collective::Pending> pending(static_cast<size_t>(members));
    for (int i = 1; i < members; ++i) {
      pending[static_cast<size_t>(i)] =
          call.Recv(i, phase, 0, 0, Raw(answers[static_cast<size_t>(i)]));
    }
    bool all = true;
    for (int i = 1; i < members; ++i) {
      const Status status = call.Wait(pending[static_cast<size_t>(i)]);
      if (!status.ok() && status.code() != StatusCode::kInvalidArgument && failure.ok()) {
        failure = status;
      }
      all = all && status.ok() && answers[static_cast<size_t>(i)] == 1;
    }
    return all;
  };
  bool share = SharesWithAll(call.ranks());
  share = gather(Phase::kShmJoin) && share;
  Mapping segment;
  uint64_t number = 0;  // Of the segment's descriptor; 0: they do not share memory.
  if (share) {
    const size_t bytes = ShmLayout(members).total_bytes;
    const auto make = [&]() -> Status {
      HEDDLE_ASSIGN_OR_RETURN(const UniqueFd memory, MakeSharedMemory(bytes));
      HEDDLE_ASSIGN_OR_RETURN(segment, Mapping::Of(memory.get(), bytes, true));
      number = kSegmentNumber | next_segment_.fetch_add(1);
      for (const int rank : call.ranks()) {
        if (rank != group_.options().rank) {
          HEDDLE_ASSIGN_OR_RETURN(const auto channel, group_.ChannelOf(rank));
          HEDDLE_RETURN_IF_ERROR(channel->SendDescriptor(number, memory.get()));
        }
      }
      return Status::Ok();
    };
    const Status made = make();
    if (made.code() == StatusCode::kUnavailable || made.code() == StatusCode::kAborted) {
      failure = made;  // A member ended; the messages below will say so too.
      share = false;
      number = 0;
    } else if (!made.ok()) {
      LogWarning("{} workers of this host exchange messages instead of sharing memory: {}", members,
                 made.message());
      number = 0;
      share = false;
    }
  }
  const auto tell = [&](Phase phase, std::span<const std::byte> news) {
    for (int i = 1; i < members; ++i) {
      const Status status = call.Wait(call.Send(i, phase, 0, 0, news));
      if (!status.ok() && status.code() != StatusCode::kInvalidArgument && failure.ok()) {
        failure = status;
      }
    }
  };
  tell(Phase::kShmVerdict, Raw(number));
  uint32_t go = 0;
  if (share && failure.ok()) {
    go = gather(Phase::kShmReady) ? 1 : 0;
    tell(Phase::kShmGo, Raw(go));
  }
  if (!failure.ok()) {
    return failure;
  }
  return go == 1 ? Make(call, std::move(segment)) : std::shared_ptr<ShmGroup>();
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::Join(Collective& call) {
  uint32_t answer = SharesWithAll(call.ranks()) ? 1 : 0;
  Status status = call.Wait(call.Send(0, Phase::kShmJoin, 0, 0, Raw(answer)));
  if (status.code() == StatusCode::kInvalidArgument) {  // Not even connected.
    return std::shared_ptr<ShmGroup>();
  }
  HEDDLE_RETURN_IF_ERROR(status);
  uint64_t number = 0;
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(0, Phase::kShmVerdict, 0, 0, Raw(number))));
  if (number == 0) {
    return std::shared_ptr<ShmGroup>();
  }
  Mapping segment;
  const auto map = [&]() -> Status {
    const size_t bytes = ShmLayout(call.size()).total_bytes;
    HEDDLE_ASSIGN_OR_RETURN(const auto channel, group_.ChannelOf(call.ranks().front()));
    HEDDLE_ASSIGN_OR_RETURN(const UniqueFd memory, channel->TakeDescriptor(number));
    HEDDLE_ASSIGN_OR_RETURN(const size_t size, CheckSharedMemory(memory.get(), bytes));
    if (size != bytes) {
      return DataLossError("a segment of {} bytes where {} are expected", size, bytes);
    }
    HEDDLE_ASSIGN_OR_RETURN(segment, Mapping::Of(memory.get(), bytes, true));
    return Status::Ok();
  };
  status = map();
  if (!status.ok()) {
    LogWarning("this worker exchanges messages instead of sharing memory: {}", status.message());
  }
  uint32_t ready = status.ok() ? 1 : 0;
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Send(0, Phase::kShmReady, 0, 0, Raw(ready))));
  uint32_t go = 0;
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(0, Phase::kShmGo, 0, 0, Raw(go))));
  return go == 1 ? Make(call, std::move(segment)) : std::shared_ptr<ShmGroup>();
}

void ShmGroups::MemberEnded(int rank, const Status& status, bool left) {
  const MutexLock lock(mutex_);
  members_ended_.push_back({.rank = rank, .status = status, .left = left});
  for (const auto& entry : entries_) {
    if (entry->group != nullptr) {
      entry->group->MemberEnded(rank, status, left);
    }
  }
}

void ShmGroups::End(const Status& status) {
  const MutexLock lock(mutex_);
  end_ = status;
  for (const auto& entry : entries_) {
    if (entry->group != nullptr) {
      entry->group->End(status);
    }
  }
}

}  // namespace heddle::comm
