#include "comm/disagreement.h"

#include <string>
#include <string_view>

#include "comm/call_card.h"
#include "comm/group.h"

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

Status WaitLooking(Group& group,
                   std::span<const int> ranks,
                   const CallNumber& call,
                   Work::State& pending,
                   Deadline deadline) {
  while (!pending.Done()) {
    const Time look = After(kLookAfter);
    if (look >= deadline || pending.WaitUntil(look)) {
      break;
    }
    HEDDLE_RETURN_IF_ERROR(LookForDisagreement(group, ranks, call));
  }
  return pending.Wait(deadline);
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
