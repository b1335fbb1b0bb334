#include "comm/group/disagreement.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "comm/group/group.h"
#include "comm/message/call_card.h"

namespace heddle::comm {

namespace {
/// In a group's reason to abort. What follows is for the callers.
constexpr std::string_view kDisagreement = "the members' calls disagree: ";
}  // namespace

Status DisagreementOf(const Group& group, int rank, uint32_t card, const Conflict& other) {
  const auto& members = group.options().members;
  return AbortedError("{}{}", kDisagreement,
                      DescribeConflict(members[static_cast<size_t>(rank)].name, card,
                                       members[static_cast<size_t>(other.rank)].name, other.card));
}

Status LookForDisagreement(Group& group, std::span<const int> ranks, const CallNumber& call) {
  const int own = group.options().rank;
  std::optional<Conflict> conflict = group.shm().FindConflict(call);
  // All are asked even so: a channel tells its peer of this wait.
  for (const int rank : ranks) {
    const auto card = rank == own ? std::nullopt : group.FindConflict(rank, call);
    if (card.has_value() && !conflict.has_value()) {
      conflict = {.rank = rank, .card = *card};
    }
  }
  return conflict.has_value() ? DisagreementOf(group, own, CardOf(call.space), *conflict)
                              : Status::Ok();
}

namespace {

struct Culprit {
  int rank = -1;
  int distance = 0;
};

// Who holds up a wait: a member that is waited for and does not wait itself, or whom one that
// waits blames; of several the nearest. What a member blames was right one look ago, so that along
// a chain of waits the end is known after as many looks as it has members; news brings the next
// look forward. Members that wait for each other could believe each other for ever; but then the
// distance grows with every look, so that the truth is nearer in the end (as in a distance-vector
// routing protocol, RFC 1058).
Culprit CulpritOf(const Group& group, std::span<const int> ranks, const CallNumber& call) {
  const int own = group.options().rank;
  Culprit culprit;
  for (const int rank : ranks) {
    if (rank == own) {
      continue;
    }
    const Channel::Wait wait = group.WaitIn(rank, call);
    if (wait.for_peer && !wait.peer_waits) {
      return {.rank = rank, .distance = 1};
    }
    const int distance = wait.distance + 1;
    if (wait.for_peer && wait.blamed >= 0 && wait.blamed < group.size() && wait.blamed != own &&
        distance < group.size() && (culprit.rank < 0 || distance < culprit.distance)) {
      culprit = {.rank = wait.blamed, .distance = distance};
    }
  }
  return culprit;
}

/// As long as it lives, news nudges a wait.
class Looking {
 public:
  Looking(Driver& driver, Work::State& wait) : driver_(driver), wait_(wait) {
    driver_.AddLooking(&wait_);
  }
  ~Looking() { driver_.RemoveLooking(&wait_); }
  Looking(const Looking&) = delete;
  Looking& operator=(const Looking&) = delete;

 private:
  Driver& driver_;
  Work::State& wait_;
};

Status NameCulprit(const Group& group, int culprit, const Status& status) {
  if (status.code() != StatusCode::kDeadlineExceeded || culprit < 0) {
    return status;
  }
  const std::string& name = group.options().members[static_cast<size_t>(culprit)].name;
  return DeadlineExceededError("{}; {} holds it up", status.message(), name);
}

}  // namespace

Status WaitLooking(Group& group,
                   std::span<const int> ranks,
                   const CallNumber& call,
                   Work::State& pending,
                   Deadline deadline) {
  if (pending.Done() || pending.WaitUntil(std::min(After(kLookAfter), deadline))) {
    return pending.Wait(deadline);
  }
  const Looking looking(group.driver(Lane::kUrgent), pending);
  CallNumber wait = call;
  while (Now() < deadline) {
    const Culprit culprit = CulpritOf(group, ranks, call);
    wait.blamed = culprit.rank;
    wait.distance = culprit.distance;
    HEDDLE_RETURN_IF_ERROR(LookForDisagreement(group, ranks, wait));
    if (pending.WaitNudged(std::min(After(kLookAfter), deadline), After(kLookAgainAfter))) {
      break;
    }
  }
  const Status status = pending.Wait(deadline);
  if (status.code() == StatusCode::kDeadlineExceeded) {
    // Those whose deadlines come later hear no more of this wait, and this member holds up nobody.
    wait.given_up = true;
    HEDDLE_RETURN_IF_ERROR(LookForDisagreement(group, ranks, wait));
  }
  return NameCulprit(group, wait.blamed, status);
}

Status TellDisagreement(Group& group, const Status& status) {
  const bool found_by_size = status.code() == StatusCode::kInvalidArgument;
  if (!found_by_size && status.code() != StatusCode::kAborted) {
    return status;
  }
  const size_t at = status.message().find(kDisagreement);
  if (at == std::string::npos && !found_by_size) {
    return status;
  }
  const Status told = InvalidArgumentError(
      "{}{}", kDisagreement,
      status.message().substr(at == std::string::npos ? 0 : at + kDisagreement.size()));
  group.Abort(told);
  return told;
}

}  // namespace heddle::comm
