#include "comm/group/peer_reports.h"

#include <algorithm>

#include "comm/message/call_signature.h"

namespace heddle::comm {

namespace {

/// An unchanged report is sent again after this time: a few looks of a wait (kLookAfter in
/// call_diagnosis.h); longer than a timeout of a queue pair.
constexpr Duration kTellAgainAfter = std::chrono::milliseconds(290);
/// A peer's report of its wait is valid for this time.
constexpr Duration kForgetAfter = std::chrono::milliseconds(700);
constexpr uint64_t kBlamedMask = (uint64_t{1} << kMinorBits) - 1;
constexpr uint64_t kDistanceMask = (uint64_t{1} << (kMajorBits - 1)) - 1;
constexpr int kGivenUpBit = kMinorBits + kMajorBits - 1;
constexpr size_t kWaitsKept = 16;  ///< Calls that a peer may wait in at once, and a few old ones.

bool OfGroup(const CallNumber& one, const CallNumber& other) {
  return one.tag == other.tag && one.group == other.group;
}

/// Whether two waits of one group and tag have the same report.
bool SaysTheSame(const CallNumber& one, const CallNumber& other) {
  return one.ordinal == other.ordinal && SignatureOf(one.space) == SignatureOf(other.space) &&
         one.blamed == other.blamed && one.distance == other.distance &&
         one.given_up == other.given_up;
}

FrameHeader Encode(const CallNumber& call) {
  FrameHeader report;
  report.kind = FrameKind::kWaiting;
  report.id = call.ordinal;
  report.total = call.group;
  report.tag = call.tag;
  report.space = SpaceOf(SignatureOf(call.space)) |
                 (static_cast<uint64_t>(call.distance) & kDistanceMask) << kMinorBits |
                 static_cast<uint64_t>(call.given_up) << kGivenUpBit |
                 (static_cast<uint64_t>(call.blamed + 1) & kBlamedMask);
  return report;
}

CallNumber Decode(const FrameHeader& report) {
  return {.tag = report.tag,
          .space = report.space,
          .ordinal = report.id,
          .group = report.total,
          .blamed = static_cast<int>(report.space & kBlamedMask) - 1,
          .distance = static_cast<int>(report.space >> kMinorBits & kDistanceMask),
          .given_up = (report.space >> kGivenUpBit & 1) != 0};
}

}  // namespace

const PeerReports::Said* PeerReports::HeardOf(const CallNumber& call) const {
  const auto found = std::find_if(heard_.begin(), heard_.end(),
                                  [&](const Said& said) { return OfGroup(said.call, call); });
  return found == heard_.end() || call.ordinal == 0 ? nullptr : &*found;
}

PeerReports::Wait PeerReports::WaitIn(const CallNumber& call, Time now) const {
  const MutexLock lock(mutex_);
  const Said* const peer = HeardOf(call);
  // A wait is reported again with every look, except the last report of one that was given up; a
  // peer that is ahead owes nothing.
  const bool waits = peer != nullptr && peer->call.ordinal <= call.ordinal &&
                     (peer->call.given_up || now - peer->at < kForgetAfter);
  return {.waits = waits,
          .blamed = waits ? peer->call.blamed : -1,
          .distance = waits ? peer->call.distance : 0};
}

std::optional<uint32_t> PeerReports::FindOtherCall(const CallNumber& call) const {
  const MutexLock lock(mutex_);
  const Said* const peer = HeardOf(call);
  const bool other = peer != nullptr && peer->call.ordinal == call.ordinal &&
                     SignatureOf(peer->call.space) != SignatureOf(call.space);
  return other ? std::optional(SignatureOf(peer->call.space)) : std::nullopt;
}

// A changed report is sent at once, an unchanged one now and then. More often would keep rxe, the
// kernel's RDMA in software, from ever giving up a silent peer: each send restarts its timer.
std::optional<FrameHeader> PeerReports::NextReport(const CallNumber& call,
                                                   bool for_peer,
                                                   Time now) {
  const MutexLock lock(mutex_);
  if (!for_peer && !call.given_up && HeardOf(call) == nullptr) {
    return std::nullopt;
  }
  std::erase_if(notified_, [&](const Said& said) { return now - said.at > kTellAgainAfter; });
  const auto notified = std::find_if(notified_.begin(), notified_.end(),
                                     [&](const Said& other) { return OfGroup(other.call, call); });
  if (notified == notified_.end()) {
    notified_.push_back({.call = call, .at = now});
  } else if (SaysTheSame(notified->call, call)) {
    return std::nullopt;
  } else {
    *notified = {.call = call, .at = now};
  }
  return Encode(call);
}

void PeerReports::Note(const FrameHeader& report, Time now) {
  const CallNumber call = Decode(report);
  bool known = false;
  {
    const MutexLock lock(mutex_);
    std::erase_if(heard_, [&](const Said& other) {
      known = known || (OfGroup(other.call, call) && SaysTheSame(other.call, call));
      return OfGroup(other.call, call);
    });
    if (heard_.size() == kWaitsKept) {
      heard_.pop_front();
    }
    heard_.push_back({.call = call, .at = now});
  }
  if (!known) {
    lasting_->Nudge();
  }
}

}  // namespace heddle::comm
