/// \file
/// Call signatures: a collective's kind and arguments in 22 bits, which are part of the key of each
/// of its messages. So members that disagree never match each other's messages, at no cost, and the
/// key of an unexpected message shows how they disagree (comm/group/call_diagnosis.h).
///
/// A collective's MessageKey::space has, from the most significant bit: phase (6 bits, 1 to 62),
/// signature (22), major (18), minor (18).
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
  kReduceScatterTree,
};

struct CallSignature {
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  bool urgent = false;  ///< CollectiveOptions::urgent.
  /// Root position of a broadcast. 9 bits are encoded, so that roots that differ by a multiple of
  /// 512 are not told apart.
  uint32_t root = 0;
  /// A hash of the sizes on which all members must agree. 12 bits are encoded, 3 for a broadcast.
  uint64_t counts = 0;
};

inline constexpr int kSignatureBits = 22;
inline constexpr int kMajorBits = 18;
inline constexpr int kMinorBits = 18;

/// The signature in kSignatureBits bits.
uint32_t EncodeSignature(const CallSignature& signature);
inline uint32_t SignatureOf(uint64_t space) {
  return static_cast<uint32_t>(space >> (kMajorBits + kMinorBits)) & ((1U << kSignatureBits) - 1);
}
/// A key space with this signature whose phase, major and minor are 0.
inline uint64_t SpaceOf(uint32_t signature) {
  return static_cast<uint64_t>(signature) << (kMajorBits + kMinorBits);
}
/// Phase of control messages, which collectives exchange beside their own messages and which have
/// no signature.
inline constexpr uint64_t kControlPhase = 63;
/// First of the 16 key spaces of the control messages that form a group in shared memory. Their tag
/// is CallNumber::group, not a call's tag.
inline constexpr uint64_t kFormingSpace = kControlPhase
                                          << (kSignatureBits + kMajorBits + kMinorBits);
inline bool IsForming(uint64_t space) {
  return space >= kFormingSpace && space < kFormingSpace + 16;
}
/// Whether a message has a signature, which the user's messages and control messages do not.
inline bool IsCollective(uint64_t space) {
  const uint64_t phase = space >> (kSignatureBits + kMajorBits + kMinorBits);
  return phase != 0 && phase != kControlPhase;
}
/// Name of a signature's kind of call in errors: "all-reduce".
std::string_view CallName(uint32_t signature);
/// A member that is in another call.
struct Conflict {
  int rank = 0;
  uint32_t signature = 0;  ///< As received; not validated.
};
/// A description of the first field in which two signatures differ: "worker-0 calls all-reduce with
/// op sum, worker-1 with op max". The signatures need not be valid.
std::string DescribeConflict(const std::string& name,
                             uint32_t signature,
                             const std::string& other_name,
                             uint32_t other_signature);

}  // namespace heddle::comm
