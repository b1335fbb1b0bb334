/// \file
/// The frame, the unit of a connection's byte stream: a fixed header and `length` bytes of payload,
/// little endian. A receiver trusts nothing in it: generation, kind and every length are checked
/// against the posted or granted operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace heddle::comm {

/// The key by which a message matches a Recv. Space 0 is for the user's Send and Recv; collectives
/// have spaces of their own (call_signature.h), so that equal tags do not conflict.
struct MessageKey {
  uint64_t tag = 0;
  uint64_t space = 0;
  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

/// The identity of a collective call, which is equal at all members that agree; for a report of a
/// wait also the state of the wait.
struct CallNumber {
  uint64_t tag = 0;
  uint64_t space = 0;  ///< Key space of any of its messages; only the signature matters.
  /// Number of the call among those with this tag and group, from 1; 0: not counted.
  uint64_t ordinal = 0;
  uint64_t group = 0;  ///< A hash of the members' ranks.
  /// Rank that delays the wait, as far as the waiting member knows; -1: none is known.
  int blamed = -1;
  /// Number of waits from the waiting member to `blamed`; 1: it waits for `blamed` itself.
  int distance = 0;
  bool given_up = false;  ///< The wait reached its deadline; this is its last report.
};

struct MessageKeyHash {
  size_t operator()(const MessageKey& key) const {
    return static_cast<size_t>((key.tag * 0x9E3779B97F4A7C15U) ^ (key.space * 0xC2B2AE3D27D4EB4FU));
  }
};

enum class FrameKind : uint8_t {
  kEager = 1,    ///< A whole message: payload of `total` bytes.
  kRequest = 2,  ///< A message of `total` bytes waits at the sender as number `id`.
  /// Message `id` may be sent: its Recv is posted. `space`: 0, or one more than the key of the
  /// memory at address `tag`, into which the sender's device may write the message directly.
  /// `total`: 1 if the message has no other way, because that memory is a device's, else 0.
  kGrant = 3,
  /// Message `id` differs in size from its Recv, of `total` bytes; `space` 1: the Recv's memory is a
  /// device's, and cannot be written into.
  kReject = 4,
  kData = 5,     ///< The next `length` bytes of message `id`.
  kCredit = 6,   ///< `total` bytes of eager window are free again.
  kAbort = 7,    ///< The peer aborted its group; payload: its reason, as text.
  kGoodbye = 8,  ///< The peer left in good order and sends nothing more.
  /// The peer reports a long wait in the collective with tag `tag`, the signature in `space`
  /// (call_signature.h), ordinal `id` and group `total` (CallNumber). The bits of `space` below the
  /// signature hold, from the lowest: blamed + 1, distance, given_up.
  kWaiting = 9,
  kPlaced = 10,    ///< Message `id` has been written to the memory that its grant named.
  kUnplaced = 11,  ///< Message `id` does not come: an end's memory is a device's, and has no way.
};

struct FrameHeader {
  uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kEager;
  uint8_t zero = 0;
  uint16_t other_class =
      0;  ///< Frames that the sender began on the pair's other traffic class before this one.
  uint32_t generation = 0;  ///< Low 32 bits.
  uint32_t length = 0;
  uint64_t tag = 0;
  uint64_t space = 0;
  uint64_t id = 0;
  uint64_t total = 0;

  static constexpr uint32_t kMagic = 0x314C4448;  // "HDL1"
};
static_assert(sizeof(FrameHeader) == 48);

/// Largest message that is sent eagerly, without a request, within kEagerWindow.
inline constexpr size_t kEagerBytes = size_t{64} << 10;
/// Smallest message that a device may place; such a message is announced by a request.
inline constexpr size_t kPlacedBytes = size_t{32} << 10;
/// Eager bytes that may lie unmatched at a receiver, per peer. A message counts as EagerCost.
inline constexpr size_t kEagerWindow = size_t{1} << 20;
/// Largest payload of a kData frame.
inline constexpr size_t kChunkBytes = size_t{256} << 10;
/// Requests that may wait for a reply at once, per peer; further messages wait unannounced.
inline constexpr size_t kRequestLimit = 1024;
/// Largest payload of a kAbort frame.
inline constexpr size_t kAbortTextBytes = 512;

/// Bytes of the eager window that a message of `bytes` takes.
inline size_t EagerCost(size_t bytes) {
  return bytes + sizeof(FrameHeader);
}

/// Checks a received header. Errors: kDataLoss (a header that no peer of this generation sends).
inline Status CheckFrame(const FrameHeader& header, uint32_t generation) {
  if (header.magic != FrameHeader::kMagic) {
    return DataLossError("frame with magic {:#x}", header.magic);
  }
  if (header.generation != generation) {
    return DataLossError("frame of generation {}", header.generation);
  }
  size_t limit = 0;
  switch (header.kind) {
    case FrameKind::kEager:
      limit = kEagerBytes;
      break;
    case FrameKind::kData:
      limit = kChunkBytes;
      break;
    case FrameKind::kAbort:
      limit = kAbortTextBytes;
      break;
    case FrameKind::kRequest:
    case FrameKind::kGrant:
    case FrameKind::kReject:
    case FrameKind::kCredit:
    case FrameKind::kGoodbye:
    case FrameKind::kWaiting:
    case FrameKind::kPlaced:
    case FrameKind::kUnplaced:
      break;
    default:
      return DataLossError("frame of kind {}", static_cast<int>(header.kind));
  }
  if (header.length > limit ||
      (header.kind == FrameKind::kEager && header.length != header.total)) {
    return DataLossError("frame of kind {} with {} of {} bytes", static_cast<int>(header.kind),
                         header.length, header.total);
  }
  return Status::Ok();
}

}  // namespace heddle::comm
