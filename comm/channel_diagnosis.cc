// Why a wait in a collective may never end: the peer is in another call. Nothing here costs
// anything until a wait has lasted for a while. Two proofs:
//
// - A message of the peer for another call of this tag lies here unmatched, while something that
//   the peer was to answer in this call is unanswered. Messages start in order, so the peer has not
//   made this call before, and it will not make it in place of the other.
// - The peer said that it waits, too, in the call of the same number of this tag and this group,
//   and its card is another.
#include <algorithm>

#include "comm/call_card.h"
#include "comm/channel.h"

namespace heddle::comm {

namespace {

constexpr size_t kWaitsKept = 16;  ///< Calls that a peer may wait in at once, and a few old ones.

bool OfCall(const MessageKey& key, const CallNumber& call) {
  return key.tag == call.tag && IsCollective(key.space) && CardOf(key.space) == CardOf(call.space);
}

}  // namespace

// Something of the call is sent or posted whose counterpart has not shown up.
bool Channel::WaitsForPeer(const CallNumber& call) const {
  return std::any_of(posted_.begin(), posted_.end(),
                     [&](const auto& entry) { return OfCall(entry.first, call); }) ||
         std::any_of(asked_.begin(), asked_.end(),
                     [&](const auto& entry) { return OfCall(entry.second->key, call); });
}

std::optional<uint32_t> Channel::FindConflict(const CallNumber& call) {
  const MutexLock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return std::nullopt;
  }
  for (const CallNumber& other : peer_waits_) {
    if (call.ordinal != 0 && other.ordinal == call.ordinal && other.tag == call.tag &&
        other.group == call.group && CardOf(other.space) != CardOf(call.space)) {
      return CardOf(other.space);
    }
  }
  if (!WaitsForPeer(call)) {
    return std::nullopt;
  }
  for (const auto& [key, messages] : early_) {
    if (key.tag == call.tag && IsCollective(key.space) && !OfCall(key, call)) {
      return CardOf(key.space);
    }
  }
  QueueControl(FrameKind::kWaiting, call.ordinal, call.group);
  control_.back().header.tag = call.tag;
  control_.back().header.space = call.space;
  PumpFromCaller();
  return std::nullopt;
}

void Channel::NoteWaiting(const CallNumber& call) {
  std::erase_if(peer_waits_, [&](const CallNumber& other) {
    return other.tag == call.tag && other.group == call.group;
  });
  if (peer_waits_.size() == kWaitsKept) {
    peer_waits_.pop_front();
  }
  peer_waits_.push_back(call);
}

}  // namespace heddle::comm
