/// \file
/// How the collectives of a group wait, and how a wait that lasts finds out why: members that call
/// unlike things where they should call the same, and who holds up the others.
///
/// What a call is travels with it, whoever looks: a call through messages has its signature in
/// their keys, one in shared memory leaves its signature in the segment. Channels and segments know
/// no more of calls. CallDiagnosis reads both, so that it does not matter who is in what, and lets
/// members that wait tell each other (peer_reports.h). Nothing of it costs anything until a wait
/// has lasted for a while.
///
/// Two proofs that a wait for a peer may never end, because it is in another call:
///
/// - A message of the peer for another call of this tag lies here unexpected, while something that
///   the peer was to answer in this call is unanswered, although all that the peer sent before that
///   message is here. So the peer has not made this call before, and it will not make it in place
///   of the other. On one traffic class messages come in order; between traffic classes their
///   counts tell (traffic_class.h).
/// - The peer said that it waits, too, in the call of the same number of this tag and this group,
///   and its signature is another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/group/peer_reports.h"
#include "comm/message/call_signature.h"
#include "comm/message/channel.h"
#include "comm/message/work.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

class Group;

/// A wait that lasts longer looks for its reason, again and again.
inline constexpr Duration kLookAfter = std::chrono::milliseconds(100);
/// The next look comes as soon when a peer has said something new meanwhile: along a chain of waits
/// the news of who holds it up takes as long for each member.
inline constexpr Duration kLookAgainAfter = std::chrono::milliseconds(5);

/// How the calls of a group wait: as they are, without asking why. Thread: any.
class CallWaits {
 public:
  virtual ~CallWaits() = default;

  /// Until `pending`, a wait in `call` among `ranks`, has ended. Errors: those of `pending` and of
  /// Look.
  virtual Status Wait(std::span<const int> ranks,
                      const CallNumber& call,
                      Work::State& pending,
                      Deadline deadline);
  /// Asked from time to time (kLookAfter) by who waits in another way: whether one of `ranks` is in
  /// another call where this worker is in `call`. Errors: kAborted, with a text that Conclude
  /// knows.
  virtual Status Look(std::span<const int> ranks, const CallNumber& call);
  /// What a call returns for `status`.
  virtual Status Conclude(const Status& status);
  /// Takes what `peer` says of its waits; null: nobody does.
  virtual std::shared_ptr<WaitReports> ReportsOf(int peer);
};

/// The same, with an answer to why a wait lasts. Thread: any.
class CallDiagnosis final : public CallWaits {
 public:
  /// `group` outlives it.
  explicit CallDiagnosis(Group& group);

  /// Looks meanwhile; a deadline that passes names who holds up the call.
  Status Wait(std::span<const int> ranks,
              const CallNumber& call,
              Work::State& pending,
              Deadline deadline) override;
  /// A member that is merely late is in no other call.
  Status Look(std::span<const int> ranks, const CallNumber& call) override;
  /// A disagreement, found here (also by a message's size: kInvalidArgument) or said by a peer that
  /// aborted, becomes kInvalidArgument, and the whole group is notified: whoever waits for this
  /// member learns it from this member.
  Status Conclude(const Status& status) override;
  std::shared_ptr<WaitReports> ReportsOf(int peer) override;

 private:
  struct Culprit {
    int rank = -1;
    int distance = 0;
  };

  Culprit CulpritOf(std::span<const int> ranks, const CallNumber& call) const;
  Status NameCulprit(int culprit, const Status& status) const;
  /// Whether something of the call is to come from `peer`, or to be taken by it.
  bool WaitsFor(int peer, const CallNumber& call) const;
  /// The signature of the call that `peer` is in where `call` is wanted. Reports this wait to the
  /// peer otherwise.
  std::optional<uint32_t> Ask(int peer, const CallNumber& call);
  PeerReports& reports(int peer) const { return *reports_[static_cast<size_t>(peer)]; }

  Group& group_;
  const std::shared_ptr<LastingWaits> lasting_ = std::make_shared<LastingWaits>();
  std::vector<std::shared_ptr<PeerReports>> reports_;  ///< By rank.
};

/// The signature of a message that `standing`, a traffic class's, has unexpected and that proves
/// the peer to be in another call: this traffic class waits for the peer, or the other one does
/// (`other_waits`) after its first `other_received` frames, before which the message was not begun.
/// Pure.
std::optional<uint32_t> FindOtherCall(const Channel::Standing& standing,
                                      bool other_waits,
                                      uint16_t other_received);
/// Whether a message belongs to `call`, or forms its group, which it waits for first. Pure.
bool OfCall(const MessageKey& key, const CallNumber& call);
/// Whether it belongs to another call of the same tag. Pure.
bool OfOtherCall(const MessageKey& key, const CallNumber& call);

/// That the members at two ranks call unlike things, as Look's error.
Status DisagreementOf(const Group& group, int rank, uint32_t signature, const Conflict& other);

}  // namespace heddle::comm
