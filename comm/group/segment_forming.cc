// How the members of a group on one host come to share a segment. The first member makes it and
// hands it to the others over the local sockets that their handshakes have authenticated; each step
// is agreed, so that either all of them use it or none.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "comm/group/group.h"
#include "comm/group/group_segments.h"

namespace heddle::comm {

namespace {

template <typename T>
std::span<std::byte> Raw(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

enum class FormingStep : uint64_t { kJoin = 1, kVerdict, kReady, kGo };

}  // namespace

/// The forming of a group's segment: members by position, messages that match whichever calls come
/// first, and one deadline. It owns the messages' buffers, because a wait may end before the
/// messages do; the destructor cancels those that are in flight.
class GroupSegments::Forming {
 public:
  using Pending = std::shared_ptr<Work::State>;
  /// The content of the steps' messages.
  struct Messages {
    uint32_t share = 0;   ///< kJoin: 1: the member shares memory with all others.
    uint64_t number = 0;  ///< kVerdict: number of the segment's descriptor; 0: no shared memory.
    uint32_t ready = 0;   ///< kReady: 1: the member has mapped the segment.
    uint32_t go = 0;      ///< kGo: 1: all members are ready.
  };

  Forming(Group& group, const std::vector<int>& ranks, const CallNumber& number, Deadline deadline)
      : group_(group),
        ranks_(ranks),
        position_(static_cast<int>(std::find(ranks.begin(), ranks.end(), group.options().rank) -
                                   ranks.begin())),
        number_(number),
        deadline_(deadline),
        answers_(ranks.size(), 1) {}
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
  Messages& messages() { return messages_; }

  Pending Send(int to, FormingStep step, std::span<const std::byte> data) {
    return Keep(group_.Send(ranks_[static_cast<size_t>(to)], KeyOf(step), data, true));
  }
  Pending Recv(int from, FormingStep step, std::span<std::byte> data) {
    return Keep(group_.Recv(ranks_[static_cast<size_t>(from)], KeyOf(step), data, true));
  }
  Status Wait(const Pending& pending) {
    return group_.waits().Wait(ranks_, number_, *pending, deadline_);
  }

  /// Whether all other members send the first member a 1 in `step`. A member without a connection
  /// to the first one finds out in another way.
  bool Gather(FormingStep step) {
    std::vector<Pending> pending(ranks_.size());
    for (size_t i = 1; i < ranks_.size(); ++i) {
      pending[i] = Recv(static_cast<int>(i), step, Raw(answers_[i]));
    }
    bool all = true;
    for (size_t i = 1; i < ranks_.size(); ++i) {
      const Status status = Wait(pending[i]);
      Fail(status);
      all = all && status.ok() && answers_[i] == 1;
    }
    return all;
  }
  void Tell(FormingStep step, std::span<const std::byte> message) {
    for (int i = 1; i < size(); ++i) {
      Fail(Wait(Send(i, step, message)));
    }
  }
  /// Records the first error that ends the forming.
  void Fail(const Status& status) {
    if (status.code() != StatusCode::kFailedPrecondition && failure_.ok()) {
      failure_ = status;
    }
  }
  const Status& failure() const { return failure_; }

 private:
  MessageKey KeyOf(FormingStep step) const {
    // The group's own number instead of a call's tag: calls of any tag may meet here.
    return {.tag = number_.group, .space = kSegmentSpace | static_cast<uint64_t>(step)};
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
  Messages messages_;
  std::vector<uint32_t> answers_;  ///< By position.
  Status failure_;
  std::vector<Pending> in_flight_;
};

Result<std::shared_ptr<GroupSegment>> GroupSegments::FormEntry(Entry& entry,
                                                               const CallNumber& number,
                                                               Deadline deadline) {
  mutex_.Unlock();
  Result<std::shared_ptr<GroupSegment>> group = std::shared_ptr<GroupSegment>();
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

// The pairs of this member; the others speak for theirs. A worker with an emulated link takes no
// short cut around it.
bool GroupSegments::SharesWithAll(const std::vector<int>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    if (rank == group_.options().rank) {
      return true;
    }
    const auto channel = group_.ChannelOf(rank, TrafficClass::kUrgent);
    return channel.ok() && (*channel)->passes_descriptors() &&
           !(*channel)->options().outgoing->limited();
  });
}

namespace {

/// Descriptors of segments and of members' regions are told apart by this bit.
constexpr uint64_t kSegmentNumber = uint64_t{1} << 63;

}  // namespace

const std::string& GroupSegments::NameOf(int rank) const {
  return group_.options().members[static_cast<size_t>(rank)].name;
}

std::shared_ptr<GroupSegment> GroupSegments::Make(const Forming& call, Mapping segment) const {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<Channel>> channels;
  for (const int rank : call.ranks()) {
    names.push_back(NameOf(rank));
    const auto channel = group_.ChannelOf(rank, TrafficClass::kUrgent);
    channels.push_back(channel.ok() ? *channel : nullptr);
  }
  return std::make_shared<GroupSegment>(call.ranks(), call.position(), std::move(names),
                                        std::move(channels), regions_, std::move(segment));
}

// The segment, and its descriptor in the hands of all.
Result<Mapping> GroupSegments::HandOutSegment(const Forming& call, uint64_t number) const {
  const size_t bytes = SegmentLayout(call.size()).total_bytes;
  HEDDLE_ASSIGN_OR_RETURN(const UniqueFd memory, MakeSharedMemory(bytes));
  HEDDLE_ASSIGN_OR_RETURN(Mapping segment, Mapping::Of(memory.get(), bytes, true));
  for (const int rank : call.ranks()) {
    if (rank != group_.options().rank) {
      HEDDLE_ASSIGN_OR_RETURN(const auto channel, group_.ChannelOf(rank, TrafficClass::kUrgent));
      const Status sent = channel->SendDescriptor(number, memory.get());
      HEDDLE_RETURN_IF_ERROR(sent.WithContext("for {}", NameOf(rank)));
    }
  }
  return segment;
}

Result<Mapping> GroupSegments::MapSegment(const Forming& call, uint64_t number) const {
  const size_t bytes = SegmentLayout(call.size()).total_bytes;
  HEDDLE_ASSIGN_OR_RETURN(const auto channel,
                          group_.ChannelOf(call.ranks().front(), TrafficClass::kUrgent));
  HEDDLE_ASSIGN_OR_RETURN(const UniqueFd memory, channel->TakeDescriptor(number));
  HEDDLE_ASSIGN_OR_RETURN(const size_t size, CheckSharedMemory(memory.get(), bytes));
  if (size != bytes) {
    return DataLossError("it has {} bytes", size);
  }
  return Mapping::Of(memory.get(), bytes, true);
}

Result<std::shared_ptr<GroupSegment>> GroupSegments::Lead(Forming& call) {
  Forming::Messages& messages = call.messages();
  bool share = SharesWithAll(call.ranks());
  share = call.Gather(FormingStep::kJoin) && share;
  Mapping segment;
  if (share) {
    const uint64_t number = kSegmentNumber | next_segment_.fetch_add(1);
    Result<Mapping> made = HandOutSegment(call, number);
    share = made.ok();
    if (made.ok()) {
      segment = *std::move(made);
      messages.number = number;
    } else if (made.status().code() != StatusCode::kUnavailable &&
               made.status().code() != StatusCode::kAborted) {
      // Otherwise a member has ended. That ends its messages, those below or the call's own, and
      // not before whoever listens for losses was told of it.
      LogWarning(
          "{} workers of this host, {} to {}, exchange messages instead of sharing {} bytes: {}",
          call.size(), NameOf(call.ranks().front()), NameOf(call.ranks().back()),
          SegmentLayout(call.size()).total_bytes, made.status().message());
    }
  }
  call.Tell(FormingStep::kVerdict, Raw(messages.number));
  if (share && call.failure().ok()) {
    messages.go = call.Gather(FormingStep::kReady) ? 1 : 0;
    call.Tell(FormingStep::kGo, Raw(messages.go));
  }
  HEDDLE_RETURN_IF_ERROR(call.failure());
  return messages.go == 1 ? Make(call, std::move(segment)) : std::shared_ptr<GroupSegment>();
}

Result<std::shared_ptr<GroupSegment>> GroupSegments::Join(Forming& call) {
  Forming::Messages& messages = call.messages();
  messages.share = SharesWithAll(call.ranks()) ? 1 : 0;
  const Status joined = call.Wait(call.Send(0, FormingStep::kJoin, Raw(messages.share)));
  if (joined.code() == StatusCode::kFailedPrecondition) {  // Not even connected.
    return std::shared_ptr<GroupSegment>();
  }
  HEDDLE_RETURN_IF_ERROR(joined);
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(0, FormingStep::kVerdict, Raw(messages.number))));
  if (messages.number == 0) {
    return std::shared_ptr<GroupSegment>();
  }
  Result<Mapping> segment = MapSegment(call, messages.number);
  if (!segment.ok()) {
    LogWarning(
        "{} cannot map the {} bytes that {} shares with it and {} others, and all of them "
        "exchange messages instead: {}",
        NameOf(group_.options().rank), SegmentLayout(call.size()).total_bytes,
        NameOf(call.ranks().front()), call.size() - 2, segment.status().message());
  }
  messages.ready = segment.ok() ? 1 : 0;
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Send(0, FormingStep::kReady, Raw(messages.ready))));
  HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(0, FormingStep::kGo, Raw(messages.go))));
  return messages.go == 1 && segment.ok() ? Make(call, *std::move(segment))
                                          : std::shared_ptr<GroupSegment>();
}

}  // namespace heddle::comm
