// Why a wait in a collective may never end: the peer is in another call. Nothing here costs
// anything until a wait has lasted for a while. Two proofs:
//
// - A message of the peer for another call of this tag lies here unmatched, while something that
//   the peer was to answer in this call is unanswered, although all that the peer sent before that
//   message is here. So the peer has not made this call before, and it will not make it in place of
//   the other. On one lane messages come in order; between lanes their counts tell (lane.h).
// - The peer said that it waits, too, in the call of the same number of this tag and this group,
//   and its card is another.
#include <algorithm>

#include "comm/message/call_card.h"
#include "comm/message/channel.h"

namespace heddle::comm {

namespace {

/// A few looks of a wait (kLookAfter in disagreement.h); longer than a timeout of a queue pair.
constexpr Duration kTellAgainAfter = std::chrono::milliseconds(290);
/// What a peer said of its wait holds for as long.
constexpr Duration kForgetAfter = std::chrono::milliseconds(700);
constexpr uint64_t kBlamedMask = (uint64_t{1} << kMinorBits) - 1;
constexpr uint64_t kDistanceMask = (uint64_t{1} << (kMajorBits - 1)) - 1;
constexpr int kGivenUpBit = kMinorBits + kMajorBits - 1;
constexpr size_t kWaitsKept = 16;  ///< Calls that a peer may wait in at once, and a few old ones.

// Also what forms the call's group, which it waits for first.
bool OfCall(const MessageKey& key, const CallNumber& call) {
  if (IsForming(key.space)) {
    return key.tag == call.group;
  }
  return key.tag == call.tag && IsCollective(key.space) && CardOf(key.space) == CardOf(call.space);
}

bool OfGroup(const CallNumber& one, const CallNumber& other) {
  return one.tag == other.tag && one.group == other.group;
}

/// Of two waits among one group.
bool SaysTheSame(const CallNumber& one, const CallNumber& other) {
  return one.ordinal == other.ordinal && CardOf(one.space) == CardOf(other.space) &&
         one.blamed == other.blamed && one.distance == other.distance &&
         one.given_up == other.given_up;
}

}  // namespace

bool Channel::WaitsForPeer(const CallNumber& call) const {
  const MutexLock lock(mutex_);
  return WaitsFor(call);
}

// What has begun to arrive is in no table any more: a peer may fall silent in the middle of a
// frame.
bool Channel::WaitsFor(const CallNumber& call) const {
  const auto of_call = [&](const auto& operation) {
    return operation != nullptr && OfCall(operation->key, call);
  };
  const auto in_queue = [&](const auto& queue) {
    return std::any_of(queue.begin(), queue.end(), of_call);
  };
  const auto in_table = [&](const auto& table) {
    return std::any_of(table.begin(), table.end(),
                       [&](const auto& entry) { return of_call(entry.second); });
  };
  return phase_ == Phase::kOpen &&
         (std::any_of(posted_.begin(), posted_.end(),
                      [&](const auto& entry) { return OfCall(entry.first, call); }) ||
          in_table(asked_) || in_table(expected_) || in_queue(messages_) || in_queue(granted_) ||
          std::any_of(placing_.begin(), placing_.end(),
                      [&](const Placing& placing) { return of_call(placing.operation); }) ||
          of_call(out_.operation) || of_call(in_operation_) ||
          (in_early_ != nullptr && of_call(in_early_->taken_by)));
}

// What the peer said last of its calls with this tag among this group; null: nothing.
const Channel::PeerWait* Channel::PeerWaitOf(const CallNumber& call) const {
  const auto found = std::find_if(peer_waits_.begin(), peer_waits_.end(),
                                  [&](const auto& other) { return OfGroup(other.call, call); });
  return found == peer_waits_.end() || call.ordinal == 0 ? nullptr : &*found;
}

Channel::Wait Channel::PeerWaitIn(const CallNumber& call) const {
  const MutexLock lock(mutex_);
  const PeerWait* const peer = PeerWaitOf(call);
  // A wait is told again with every look, save the last word of one that was given up; a peer that
  // is ahead owes nothing.
  const bool waits = peer != nullptr && peer->call.ordinal <= call.ordinal &&
                     (peer->call.given_up || Now() - peer->heard < kForgetAfter);
  return {.for_peer = false,
          .peer_waits = waits,
          .blamed = waits ? peer->call.blamed : -1,
          .distance = waits ? peer->call.distance : 0};
}

std::optional<uint32_t> Channel::FindOtherWait(const CallNumber& call) const {
  const MutexLock lock(mutex_);
  const PeerWait* const peer = phase_ == Phase::kOpen ? PeerWaitOf(call) : nullptr;
  const bool other = peer != nullptr && peer->call.ordinal == call.ordinal &&
                     CardOf(peer->call.space) != CardOf(call.space);
  return other ? std::optional(CardOf(peer->call.space)) : std::nullopt;
}

std::optional<uint32_t> Channel::FindStray(const CallNumber& call,
                                           bool other_waits,
                                           uint16_t other_received) const {
  const MutexLock lock(mutex_);
  const bool waits = WaitsFor(call);
  if (phase_ != Phase::kOpen || !(waits || other_waits)) {
    return std::nullopt;
  }
  for (const auto& [key, messages] : early_) {
    if (key.tag == call.tag && IsCollective(key.space) && !OfCall(key, call) &&
        (waits || HasCome(messages.front()->other_lane, other_received))) {
      return CardOf(key.space);
    }
  }
  return std::nullopt;
}

// At once when there is news, otherwise now and then. More often would keep rxe, the kernel's RDMA
// in software, from ever giving up a silent peer: each send winds up its timer.
void Channel::TellWaiting(const CallNumber& call, bool for_peer) {
  const MutexLock lock(mutex_);
  const bool matters = for_peer || call.given_up || PeerWaitOf(call) != nullptr;
  if (phase_ != Phase::kOpen || !matters) {
    return;
  }
  const Time now = Now();
  std::erase_if(told_waits_, [&](const Told& told) { return now - told.at > kTellAgainAfter; });
  const auto told = std::find_if(told_waits_.begin(), told_waits_.end(),
                                 [&](const Told& other) { return OfGroup(other.call, call); });
  if (told == told_waits_.end()) {
    told_waits_.push_back({.call = call, .at = now});
  } else if (SaysTheSame(told->call, call)) {
    return;
  } else {
    *told = {.call = call, .at = now};
  }
  QueueControl(FrameKind::kWaiting, call.ordinal, call.group);
  control_.back().header.tag = call.tag;
  control_.back().header.space = SpaceOf(CardOf(call.space)) |
                                 (static_cast<uint64_t>(call.distance) & kDistanceMask)
                                     << kMinorBits |
                                 static_cast<uint64_t>(call.given_up) << kGivenUpBit |
                                 (static_cast<uint64_t>(call.blamed + 1) & kBlamedMask);
  PumpFromCaller();
}

void Channel::NoteWaiting(const FrameHeader& frame) {
  const CallNumber call{.tag = frame.tag,
                        .space = frame.space,
                        .ordinal = frame.id,
                        .group = frame.total,
                        .blamed = static_cast<int>(frame.space & kBlamedMask) - 1,
                        .distance = static_cast<int>(frame.space >> kMinorBits & kDistanceMask),
                        .given_up = (frame.space >> kGivenUpBit & 1) != 0};
  bool known = false;
  std::erase_if(peer_waits_, [&](const PeerWait& other) {
    known = known || (OfGroup(other.call, call) && SaysTheSame(other.call, call));
    return OfGroup(other.call, call);
  });
  if (peer_waits_.size() == kWaitsKept) {
    peer_waits_.pop_front();
  }
  peer_waits_.push_back({.call = call, .heard = Now()});
  if (!known && options_.driver != nullptr) {
    options_.driver->NudgeLooking();
  }
}

}  // namespace heddle::comm
