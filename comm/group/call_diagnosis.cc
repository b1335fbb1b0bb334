#include "comm/group/call_diagnosis.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "comm/group/group.h"

namespace heddle::comm {

namespace {

/// Marks a disagreement in a group's abort reason; the text after it is for the callers.
constexpr std::string_view kDisagreement = "the members' calls disagree: ";

KeyPredicate Of(const CallNumber& call) {
  return [&call](const MessageKey& key) { return OfCall(key, call); };
}

bool NoMessage(const MessageKey& /*key*/) {
  return false;
}

}  // namespace

Status CallWaits::Wait(std::span<const int> /*ranks*/,
                       const CallNumber& /*call*/,
                       Work::State& pending,
                       Deadline deadline) {
  return pending.Wait(deadline);
}

Status CallWaits::Look(std::span<const int> /*ranks*/, const CallNumber& /*call*/) {
  return Status::Ok();
}

Status CallWaits::Conclude(const Status& status) {
  return status;
}

std::shared_ptr<WaitReports> CallWaits::ReportsOf(int /*peer*/) {
  return nullptr;
}

CallDiagnosis::CallDiagnosis(Group& group) : group_(group) {
  for (int rank = 0; rank < group.size(); ++rank) {
    reports_.push_back(std::make_shared<PeerReports>(lasting_));
  }
}

std::shared_ptr<WaitReports> CallDiagnosis::ReportsOf(int peer) {
  return reports_[static_cast<size_t>(peer)];
}

Status DisagreementOf(const Group& group, int rank, uint32_t signature, const Conflict& other) {
  const auto& members = group.options().members;
  return AbortedError(
      "{}{}", kDisagreement,
      DescribeConflict(members[static_cast<size_t>(rank)].name, signature,
                       members[static_cast<size_t>(other.rank)].name, other.signature));
}

bool OfCall(const MessageKey& key, const CallNumber& call) {
  if (IsForming(key.space)) {
    return key.tag == call.group;
  }
  return key.tag == call.tag && IsCollective(key.space) &&
         SignatureOf(key.space) == SignatureOf(call.space);
}

bool OfOtherCall(const MessageKey& key, const CallNumber& call) {
  return key.tag == call.tag && IsCollective(key.space) && !OfCall(key, call);
}

std::optional<uint32_t> FindOtherCall(const Channel::Snapshot& snapshot,
                                      bool other_waits,
                                      uint16_t other_received) {
  for (const UnexpectedMessage& message : snapshot.unexpected) {
    if (snapshot.waits || (other_waits && HasCome(message.other_class, other_received))) {
      return SignatureOf(message.key.space);
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> CallDiagnosis::Ask(int peer, const CallNumber& call) {
  const auto urgent = group_.ChannelOf(peer, TrafficClass::kUrgent);
  const auto bulk = group_.ChannelOf(peer, TrafficClass::kBulk);
  if (!urgent.ok() || !bulk.ok()) {
    return std::nullopt;
  }
  // The frames are counted first: a message that is still awaited afterwards is not among them.
  const FrameCounts& frames = *(*urgent)->options().frames;
  std::array<uint16_t, kTrafficClasses> received{};
  for (const TrafficClass traffic_class : kEachTrafficClass) {
    received[IndexOf(traffic_class)] = frames.received[IndexOf(traffic_class)].load();
  }
  std::array<Channel::Snapshot, kTrafficClasses> snapshots;
  for (const TrafficClass traffic_class : kEachTrafficClass) {
    const Channel& channel = traffic_class == TrafficClass::kUrgent ? **urgent : **bulk;
    snapshots[IndexOf(traffic_class)] = channel.Inspect(
        Of(call), [&call](const MessageKey& key) { return OfOtherCall(key, call); });
  }
  const bool open = snapshots[IndexOf(TrafficClass::kUrgent)].open;
  auto other = open ? reports(peer).FindOtherCall(call) : std::nullopt;
  for (const TrafficClass traffic_class : kEachTrafficClass) {
    const size_t beside = IndexOf(OtherTrafficClass(traffic_class));
    if (!other.has_value()) {
      other = FindOtherCall(snapshots[IndexOf(traffic_class)], snapshots[beside].waits,
                            received[beside]);
    }
  }
  if (!other.has_value() && open) {
    const bool for_peer = snapshots[0].waits || snapshots[1].waits;
    if (const auto report = reports(peer).NextReport(call, for_peer, Now()); report.has_value()) {
      (*urgent)->Report(*report);
    }
  }
  return other;
}

bool CallDiagnosis::WaitsFor(int peer, const CallNumber& call) const {
  return std::any_of(kEachTrafficClass.begin(), kEachTrafficClass.end(),
                     [&](TrafficClass traffic_class) {
                       const auto channel = group_.ChannelOf(peer, traffic_class);
                       return channel.ok() && (*channel)->Inspect(Of(call), NoMessage).waits;
                     });
}

Status CallDiagnosis::Look(std::span<const int> ranks, const CallNumber& call) {
  const int own = group_.options().rank;
  std::optional<Conflict> conflict = group_.segments().FindConflict(call);
  // All peers are asked even so, because that reports this wait to them.
  for (const int rank : ranks) {
    const auto signature = rank == own ? std::nullopt : Ask(rank, call);
    if (signature.has_value() && !conflict.has_value()) {
      conflict = {.rank = rank, .signature = *signature};
    }
  }
  return conflict.has_value() ? DisagreementOf(group_, own, SignatureOf(call.space), *conflict)
                              : Status::Ok();
}

// The member that delays a wait: a member that is waited for and does not wait itself, or the
// member blamed by one that waits; of several the nearest. A member's report was right one look
// ago, so that along a chain of waits the end is known after as many looks as it has members; a new
// report brings the next look forward. Members that wait for each other could believe each other
// for ever, but then the distance grows with every look, so that the true culprit is nearer in the
// end (as in a distance-vector routing protocol, RFC 1058).
CallDiagnosis::Culprit CallDiagnosis::CulpritOf(std::span<const int> ranks,
                                                const CallNumber& call) const {
  const int own = group_.options().rank;
  Culprit culprit;
  for (const int rank : ranks) {
    if (rank == own || !WaitsFor(rank, call)) {
      continue;
    }
    const PeerReports::Wait wait = reports(rank).WaitIn(call, Now());
    if (!wait.waits) {
      return {.rank = rank, .distance = 1};
    }
    const int distance = wait.distance + 1;
    if (wait.blamed >= 0 && wait.blamed < group_.size() && wait.blamed != own &&
        distance < group_.size() && (culprit.rank < 0 || distance < culprit.distance)) {
      culprit = {.rank = wait.blamed, .distance = distance};
    }
  }
  return culprit;
}

Status CallDiagnosis::NameCulprit(int culprit, const Status& status) const {
  if (status.code() != StatusCode::kDeadlineExceeded || culprit < 0) {
    return status;
  }
  const std::string& name = group_.options().members[static_cast<size_t>(culprit)].name;
  return DeadlineExceededError("{}; {} holds it up", status.message(), name);
}

Status CallDiagnosis::Wait(std::span<const int> ranks,
                           const CallNumber& call,
                           Work::State& pending,
                           Deadline deadline) {
  if (pending.Done() || pending.WaitUntil(std::min(After(kLookAfter), deadline))) {
    return pending.Wait(deadline);
  }
  const LastingWaits::Entry lasting(*lasting_, pending);
  CallNumber wait = call;
  while (Now() < deadline) {
    const Culprit culprit = CulpritOf(ranks, call);
    wait.blamed = culprit.rank;
    wait.distance = culprit.distance;
    HEDDLE_RETURN_IF_ERROR(Look(ranks, wait));
    if (pending.WaitNudged(std::min(After(kLookAfter), deadline), After(kLookAgainAfter))) {
      break;
    }
  }
  const Status status = pending.Wait(deadline);
  if (status.code() == StatusCode::kDeadlineExceeded) {
    // Members with later deadlines get no further report of this wait: it delays no member.
    wait.given_up = true;
    HEDDLE_RETURN_IF_ERROR(Look(ranks, wait));
  }
  return NameCulprit(wait.blamed, status);
}

Status CallDiagnosis::Conclude(const Status& status) {
  const bool found_by_size = status.code() == StatusCode::kInvalidArgument;
  if (!found_by_size && status.code() != StatusCode::kAborted) {
    return status;
  }
  const size_t at = status.message().find(kDisagreement);
  if (at == std::string::npos && !found_by_size) {
    return status;
  }
  const Status reason = InvalidArgumentError(
      "{}{}", kDisagreement,
      status.message().substr(at == std::string::npos ? 0 : at + kDisagreement.size()));
  group_.Abort(reason);
  return reason;
}

}  // namespace heddle::comm
