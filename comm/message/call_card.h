/// \file
/// What a member of a group calls, short enough to be part of every message's key. Members that
/// disagree then never match each other's messages, at no cost; and the key of a message that
/// nobody takes tells how they disagree (channel_diagnosis.cc).
///
/// A collective's MessageKey::space, from the top: phase (6 bits, 1 to 62), card (22), major (18),
/// minor (18).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/tensor/dtype.h"
#include "comm/communicator.h"
#include "comm/message/frame.h"

namespace heddle::comm {

enum class CallKind : uint8_t {
  kBarrier = 1,
  kAllGatherBytes,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kReduceTree,
};

struct CallCard {
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  /// Of a broadcast; 9 bits travel, so that roots that differ by a multiple of 512 look alike.
  uint32_t root = 0;
  /// A hash of the sizes that all must agree on; 13 bits travel, 4 of a broadcast.
  uint64_t counts = 0;
};

inline constexpr int kCardBits = 22;
inline constexpr int kMajorBits = 18;
inline constexpr int kMinorBits = 18;

/// The 22 bits that travel.
uint32_t EncodeCard(const CallCard& card);
inline uint32_t CardOf(uint64_t space) {
  return static_cast<uint32_t>(space >> (kMajorBits + kMinorBits)) & ((1U << kCardBits) - 1);
}
/// A space with the card alone.
inline uint64_t SpaceOf(uint32_t card) {
  return static_cast<uint64_t>(card) << (kMajorBits + kMinorBits);
}
/// Of messages that collectives exchange beside their own; they have no card.
inline constexpr uint64_t kControlPhase = 63;
/// Of those that form a group in shared memory. Their tag is the group's number, not a call's.
inline constexpr uint64_t kFormingSpace = kControlPhase << (kCardBits + kMajorBits + kMinorBits);
inline bool IsForming(uint64_t space) {
  return space >= kFormingSpace && space < kFormingSpace + 16;
}
/// Whether a message has a card: neither the user's nor one of those.
inline bool IsCollective(uint64_t space) {
  const uint64_t phase = space >> (kCardBits + kMajorBits + kMinorBits);
  return phase != 0 && phase != kControlPhase;
}
/// "all-reduce": what a card's call is named in errors.
std::string_view CallName(uint32_t card);
/// "worker-0 calls all-reduce with op sum, worker-1 with op max": the first field in which the two
/// cards differ. What they hold may come from the network.
std::string DescribeConflict(const std::string& name,
                             uint32_t card,
                             const std::string& other_name,
                             uint32_t other_card);

}  // namespace heddle::comm
