/// \file
/// How the collectives of a group wait, and how a wait that lasts is diagnosed: it detects members
/// that make different calls where all should make the same, and the member that delays the others.
///
/// A call's signature travels with its data: in the keys of its messages, or in the shared segment.
/// Channels and segments know nothing else about calls. CallDiagnosis reads both, so that it does
/// not matter which of them a member uses, and lets waiting members report their waits to each
/// other (peer_reports.h). The diagnosis costs nothing until a wait has lasted for a while.
///
/// There are two proofs that a peer is in another call, so that a wait for it may never end:
///
/// - An unexpected message of the peer for another call of this tag has arrived, while the peer
///   still owes a message of this call, although everything that it sent before the unexpected
///   message has arrived. So the peer has not made this call before the other, and will not make it
///   in place of the other. Messages of one traffic class arrive in order; frame counts establish
///   the order between traffic classes (traffic_class.h).
/// - The peer reported that it waits in the call of the same tag, group and number, with another
///   signature.
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

/// A wait is diagnosed after this time, and again each time it has passed.
inline constexpr Duration kLookAfter = std::chrono::milliseconds(100);
/// Minimum time between two diagnoses of a wait when a peer has sent a new report meanwhile. Along
/// a chain of waits, a report of the delaying member takes this long per member.
inline constexpr Duration kLookAgainAfter = std::chrono::milliseconds(5);

/// How the calls of a group wait. This base class waits without a diagnosis. Thread: any.
class CallWaits {
 public:
  virtual ~CallWaits() = default;

  /// Waits until `pending`, an operation of `call` among `ranks`, has ended. Errors: those of
  /// `pending` and of Look.
  virtual Status Wait(std::span<const int> ranks,
                      const CallNumber& call,
                      Work::State& pending,
                      Deadline deadline);
  /// Checks whether one of `ranks` is in another call while this worker is in `call`. Waits that do
  /// not use Wait call it every kLookAfter. Errors: kAborted, with a text that Conclude recognises.
  virtual Status Look(std::span<const int> ranks, const CallNumber& call);
  /// The status that a call returns when it ends with `status`.
  virtual Status Conclude(const Status& status);
  /// The receiver of `peer`'s reports of its waits; null: they are dropped.
  virtual std::shared_ptr<WaitReports> ReportsOf(int peer);
};

/// Waits with a diagnosis of why a wait lasts. Thread: any.
class CallDiagnosis final : public CallWaits {
 public:
  /// `group` outlives it.
  explicit CallDiagnosis(Group& group);

  /// Waits and calls Look every kLookAfter. kDeadlineExceeded names the member that delays the call
  /// if it is known.
  Status Wait(std::span<const int> ranks,
              const CallNumber& call,
              Work::State& pending,
              Deadline deadline) override;
  /// Fails only on a proof that a member is in another call; a late member is no error. Reports
  /// this wait to the peers that it waits for.
  Status Look(std::span<const int> ranks, const CallNumber& call) override;
  /// Turns a disagreement into kInvalidArgument and aborts the group with it, so that all members
  /// learn of it. A disagreement is one that Look found, one that an aborting peer reported, or any
  /// kInvalidArgument (a message of another size).
  Status Conclude(const Status& status) override;
  std::shared_ptr<WaitReports> ReportsOf(int peer) override;

 private:
  struct Culprit {
    int rank = -1;
    int distance = 0;
  };

  Culprit CulpritOf(std::span<const int> ranks, const CallNumber& call) const;
  Status NameCulprit(int culprit, const Status& status) const;
  /// Whether an operation of `call` with `peer` is in flight.
  bool WaitsFor(int peer, const CallNumber& call) const;
  /// The signature of the other call that `peer` is proved to be in. Without such a proof it
  /// returns nullopt and reports this wait to the peer.
  std::optional<uint32_t> Ask(int peer, const CallNumber& call);
  PeerReports& reports(int peer) const { return *reports_[static_cast<size_t>(peer)]; }

  Group& group_;
  const std::shared_ptr<LastingWaits> lasting_ = std::make_shared<LastingWaits>();
  std::vector<std::shared_ptr<PeerReports>> reports_;  ///< By rank.
};

/// The signature of an unexpected message of one traffic class (`snapshot`) that proves the peer to
/// be in another call; nullopt: there is none. It is a proof if this traffic class waits for the
/// peer, or if the other one does (`other_waits`) although all frames that the peer had sent on it
/// before the message are among its `other_received` frames. Pure.
std::optional<uint32_t> FindOtherCall(const Channel::Snapshot& snapshot,
                                      bool other_waits,
                                      uint16_t other_received);
/// Whether a message with `key` belongs to `call`, or to the forming of the call's group in shared
/// memory, for which the call waits first. Pure.
bool OfCall(const MessageKey& key, const CallNumber& call);
/// Whether a message with `key` belongs to another call of the same tag. Pure.
bool OfOtherCall(const MessageKey& key, const CallNumber& call);

/// Look's error for a disagreement between the calls of the members at `rank` and `other.rank`.
Status DisagreementOf(const Group& group, int rank, uint32_t signature, const Conflict& other);

}  // namespace heddle::comm
