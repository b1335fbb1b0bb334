/// \file
/// Members of a group that call unlike things where they should call the same: how a wait that
/// lasts finds out, and how everyone learns of it.
///
/// A call through messages leaves its card in their keys and, once its wait lasts, tells those it
/// waits for (Channel::FindConflict); a call in shared memory leaves its card in the segment
/// (ShmGroup::FindConflict). A look reads both, so that it does not matter who is in what.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "comm/message/frame.h"
#include "comm/message/work.h"

namespace heddle::comm {

class Group;

/// A wait that lasts longer looks for its reason, again and again.
inline constexpr Duration kLookAfter = std::chrono::milliseconds(100);
/// The next look comes as soon when a peer has said something new meanwhile: along a chain of waits
/// the news of who holds it up takes as long for each member.
inline constexpr Duration kLookAgainAfter = std::chrono::milliseconds(5);

/// A member that is in another call.
struct Conflict {
  int rank = 0;
  uint32_t card = 0;  ///< As it travelled: anything (call_card.h).
};

/// Whether one of `ranks` is in another call where this worker is in `call`. A member that is
/// merely late is in none. Errors: kAborted, with a text that TellDisagreement knows.
Status LookForDisagreement(Group& group, std::span<const int> ranks, const CallNumber& call);

/// That the members at two ranks call unlike things, as such an error.
Status DisagreementOf(const Group& group, int rank, uint32_t card, const Conflict& other);

/// Until `pending` has ended; looks meanwhile. Errors: those of `pending` and of the look.
Status WaitLooking(Group& group,
                   std::span<const int> ranks,
                   const CallNumber& call,
                   Work::State& pending,
                   Deadline deadline);

/// What a call returns for `status`. A disagreement, found here (also by a message's size:
/// kInvalidArgument) or told by a peer that aborted, becomes kInvalidArgument, and the whole group
/// is told: whoever waits for this member learns it from this member.
Status TellDisagreement(Group& group, const Status& status);

}  // namespace heddle::comm
