/// \file
/// What a member of a group calls, short enough to be part of every message's key. Members that
/// disagree then never match each other's messages, at no cost; and the key of a message that
/// nobody takes tells how they disagree (comm/group/call_diagnosis.h).
///
/// A collective's MessageKey::space, from the top: phase (6 bits, 1 to 62), signature (22), major
/// (18), minor (18).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/tensor/dtype.h"
#include "comm/communicator.h"
#include "comm/stream/frame.h"

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

struct CallSignature {
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  /// Of a broadcast; 9 bits travel, so that roots that differ by a multiple of 512 look alike.
  uint32_t root = 0;
  /// A hash of the sizes that all must agree on; 13 bits travel, 4 of a broadcast.
  uint64_t counts = 0;
};

inline constexpr int kSignatureBits = 22;
inline constexpr int kMajorBits = 18;
inline constexpr int kMinorBits = 18;

/// The 22 bits that travel.
uint32_t EncodeSignature(const CallSignature& signature);
inline uint32_t SignatureOf(uint64_t space) {
  return static_cast<uint32_t>(space >> (kMajorBits + kMinorBits)) & ((1U << kSignatureBits) - 1);
}
/// A space with the signature alone.
inline uint64_t SpaceOf(uint32_t signature) {
  return static_cast<uint64_t>(signature) << (kMajorBits + kMinorBits);
}
/// Of messages that collectives exchange beside their own; they have no signature.
inline constexpr uint64_t kControlPhase = 63;
/// Of those that form a group in shared memory. Their tag is the group's number, not a call's.
inline constexpr uint64_t kFormingSpace = kControlPhase
                                          << (kSignatureBits + kMajorBits + kMinorBits);
inline bool IsForming(uint64_t space) {
  return space >= kFormingSpace && space < kFormingSpace + 16;
}
/// Whether a message has a signature: neither the user's nor one of those.
inline bool IsCollective(uint64_t space) {
  const uint64_t phase = space >> (kSignatureBits + kMajorBits + kMinorBits);
  return phase != 0 && phase != kControlPhase;
}
/// "all-reduce": what a signature's call is named in errors.
std::string_view CallName(uint32_t signature);
/// A member that is in another call.
struct Conflict {
  int rank = 0;
  uint32_t signature = 0;  ///< As it travelled: anything.
};
/// "worker-0 calls all-reduce with op sum, worker-1 with op max": the first field in which the two
/// signatures differ. What they hold may come from the network.
std::string DescribeConflict(const std::string& name,
                             uint32_t signature,
                             const std::string& other_name,
                             uint32_t other_signature);

}  // namespace heddle::comm
