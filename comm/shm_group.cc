// The segment of a group on one host: its layout, how its members form it, and how they learn of
// each other's end. The first member makes the segment and hands it to the others over the local
// sockets that their handshakes have authenticated; each step is agreed, so that either all of them
// use it or none.
#include "comm/shm_group.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
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

enum class FormingStep : uint64_t { kJoin = 1, kVerdict, kReady, kGo };

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

std::optional<Conflict> ShmGroup::FindConflict(const CallNumber& number) const {
  for (int lane = 0; number.ordinal != 0 && lane < kShmLanes; ++lane) {
    const uint64_t call = lanes_[static_cast<size_t>(lane)].calls.load() + 1;
    const uint64_t word = ShmWord(call, number.tag);
    for (int member = 0; member < size(); ++member) {
      const ShmLine& line = Block(lane, member).lines[call % 2];
      if (member == position_ || line.word.load() != word) {
        continue;
      }
      const uint64_t announced = line.call.load(std::memory_order_acquire);
      // It may have taken the call back and announced another one here meanwhile: what such an
      // announcement stores is seen after its word 0.
      if (((announced ^ number.ordinal) & kShmOrdinalMask) == 0 &&
          announced >> kShmOrdinalBits != CardOf(number.space) && line.word.load() == word) {
        return Conflict{.rank = ranks_[static_cast<size_t>(member)],
                        .card = static_cast<uint32_t>(announced >> kShmOrdinalBits)};
      }
    }
  }
  return std::nullopt;
}

/// What forms a group: its members by position, messages that meet whichever calls come first, and
/// one deadline. Its end takes the buffers back from what is still in flight.
class ShmGroups::Forming {
 public:
  using Pending = std::shared_ptr<Work::State>;

  Forming(Group& group, const std::vector<int>& ranks, const CallNumber& number, Deadline deadline)
      : group_(group),
        ranks_(ranks),
        position_(static_cast<int>(std::find(ranks.begin(), ranks.end(), group.options().rank) -
                                   ranks.begin())),
        number_(number),
        deadline_(deadline) {}
  ~Forming() {
    for (const Pending& pending : in_flight_) {
      if (!pending->Done()) {
        pending->Cancel(CancelledError("the group was not formed"));
      }
    }
  }
  Forming(const Forming&) = delete;
  Forming& operator=(const Forming&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  const std::vector<int>& ranks() const { return ranks_; }

  Pending Send(int to, FormingStep step, std::span<const std::byte> data) {
    return Keep(group_.Send(ranks_[static_cast<size_t>(to)], KeyOf(step), data, true));
  }
  Pending Recv(int from, FormingStep step, std::span<std::byte> data) {
    return Keep(group_.Recv(ranks_[static_cast<size_t>(from)], KeyOf(step), data, true));
  }
  Status Wait(const Pending& pending) {
    return WaitLooking(group_, ranks_, number_, *pending, deadline_);
  }

 private:
  MessageKey KeyOf(FormingStep step) const {
    // The group's own number instead of a call's tag: calls of any tag may meet here.
    return {.tag = number_.group, .space = kShmSpace | static_cast<uint64_t>(step)};
  }
  Pending Keep(Pending pending) {
    in_flight_.push_back(pending);
    return pending;
  }

  Group& group_;
  const std::vector<int> ranks_;
  const int position_;
  const CallNumber number_;
  const Deadline deadline_;
  std::vector<Pending> in_flight_;
};

ShmGroups::ShmGroups(Group& group, std::shared_ptr<SharedRegions> regions)
    : group_(group),
      regions_(std::move(regions)) {
  const auto host_of = [](const std::string& address, bool sharing) -> std::string {
    const auto parts = ParseAddress(address);
    return parts.ok() && parts->contains("host") && (!sharing || parts->contains("shm"))
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

bool ShmGroups::Matches(const Entry& entry, std::span<const int> ranks) const {
  return ranks.empty()
             ? entry.ranks.size() == hosts_.size()
             : std::equal(entry.ranks.begin(), entry.ranks.end(), ranks.begin(), ranks.end());
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::Get(const CollectiveOptions& options,
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
    return std::shared_ptr<ShmGroup>();  // No group at all: who exchanges messages says so.
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
    const Status look = LookForDisagreement(group_, ranks, number);
    mutex_.Lock();
    HEDDLE_RETURN_IF_ERROR(look);
  }
  const bool may_share = ranks.size() >= 2 && ranks.size() <= kMostSharing && OnOneHost(ranks);
  auto entry = std::make_shared<Entry>(Entry{
      .ranks = std::move(ranks), .hash = number.group, .forming = may_share, .group = nullptr});
  entries_.push_back(entry);
  return may_share ? FormEntry(*entry, number, deadline) : std::shared_ptr<ShmGroup>();
}

std::optional<Conflict> ShmGroups::FindConflict(const CallNumber& number) {
  std::shared_ptr<ShmGroup> group;
  {
    const MutexLock lock(mutex_);
    for (const auto& entry : entries_) {
      group = entry->hash == number.group ? entry->group : group;
    }
  }
  return group == nullptr ? std::nullopt : group->FindConflict(number);
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::FormEntry(Entry& entry,
                                                       const CallNumber& number,
                                                       Deadline deadline) {
  mutex_.Unlock();
  Result<std::shared_ptr<ShmGroup>> group = std::shared_ptr<ShmGroup>();
  {
    Forming forming(group_, entry.ranks, number, deadline);
    group = forming.position() == 0 ? Lead(forming) : Join(forming);
  }
  mutex_.Lock();
  entry.forming = false;
  if (group.ok() && *group != nullptr) {
    entry.group = *group;
    for (const Ended& ended : members_ended_) {
      entry.group->MemberEnded(ended.rank, ended.status, ended.left);
    }
    if (!end_.ok()) {
      entry.group->End(end_);
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
    const auto channel = group_.ChannelOf(rank, Lane::kUrgent);
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

std::shared_ptr<ShmGroup> ShmGroups::Make(const Forming& call, Mapping segment) const {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<Channel>> channels;
  for (const int rank : call.ranks()) {
    names.push_back(group_.options().members[static_cast<size_t>(rank)].name);
    const auto channel = group_.ChannelOf(rank, Lane::kUrgent);
    channels.push_back(channel.ok() ? *channel : nullptr);
  }
  return std::make_shared<ShmGroup>(call.ranks(), call.position(), std::move(names),
                                    std::move(channels), regions_, std::move(segment));
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::Lead(Forming& call) {
  const int members = call.size();
  std::vector<uint32_t> answers(static_cast<size_t>(members), 1);
  Status failure;
  // Everyone's answer; a member that is not connected to this one has its own way to know.
  const auto gather = [&](FormingStep step) {
    std::vector<Forming::Pending> pending(static_cast<size_t>(members));
    for (int i = 1; i < members; ++i) {
      pending[static_cast<size_t>(i)] = call.Recv(i, step, Raw(answers[static_cast<size_t>(i)]));
    }
    bool all = true;
    for (int i = 1; i < members; ++i) {
      const Status status = call.Wait(pending[static_cast<size_t>(i)]);
      if (!status.ok() && status.code() != StatusCode::kFailedPrecondition && failure.ok()) {
        failure = status;
      }
      all = all && status.ok() && answers[static_cast<size_t>(i)] == 1;
    }
    return all;
  };
  bool share = SharesWithAll(call.ranks());
  share = gather(FormingStep::kJoin) && share;
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
          HEDDLE_ASSIGN_OR_RETURN(const auto channel, group_.ChannelOf(rank, Lane::kUrgent));
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
  const auto tell = [&](FormingStep step, std::span<const std::byte> news) {
    for (int i = 1; i < members; ++i) {
      const Status status = call.Wait(call.Send(i, step, news));
      if (!status.ok() && status.code() != StatusCode::kFailedPrecondition && failure.ok()) {
        failure = status;
      }
    }
  };
  tell(FormingStep::kVerdict, Raw(number));
  uint32_t go = 0;
  if (share && failure.ok()) {
    go = gather(FormingStep::kReady) ? 1 : 0;
    tell(FormingStep::kGo, Raw(go));
  }
  if (!failure.ok()) {
    return failure;
  }
  return go == 1 ? Make(call, std::move(segment)) : std::shared_ptr<ShmGroup>();
}

Result<std::shared_ptr<ShmGroup>> ShmGroups::Join(Forming& call) {
  uint32_t answer = SharesWithAll(call.ranks()) ? 1 : 0;
  Status status = call.Wait(call.Send(0, FormingStep::kJoin, Raw(answer)));
  if (status.code() == StatusCode::kFailedPrecondition) {  // Not even connected.
    return std::shared_ptr<ShmGroup>();
  }
  HEDDLE_RETURN_IF_ERROR(status);
  uint64_t number = 0;
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(0, FormingStep::kVerdict, Raw(number))));
  if (number == 0) {
    return std::shared_ptr<ShmGroup>();
  }
  Mapping segment;
  const auto map = [&]() -> Status {
    const size_t bytes = ShmLayout(call.size()).total_bytes;
    HEDDLE_ASSIGN_OR_RETURN(const auto channel,
                            group_.ChannelOf(call.ranks().front(), Lane::kUrgent));
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
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Send(0, FormingStep::kReady, Raw(ready))));
  uint32_t go = 0;
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(0, FormingStep::kGo, Raw(go))));
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
