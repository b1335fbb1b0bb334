/// \file
/// The unit of a connection's byte stream: a fixed header and up to `length` bytes of payload.
/// Little endian. A receiver trusts nothing in it: generation, kind and every length are checked
/// against what was posted or granted here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace heddle::comm {

/// What matches a message with its Recv. Space 0 is the user's Send and Recv; collectives have
/// spaces of their own (collective.h), so that their tags never meet.
struct MessageKey {
  uint64_t tag = 0;
  uint64_t space = 0;
  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

/// Which call of a collective: the same numbers at all members that agree.
struct CallNumber {
  uint64_t tag = 0;
  uint64_t space = 0;  ///< That of any of its messages: the signature counts.
  /// Calls of this tag among this group before; 0: not known.
  uint64_t ordinal = 0;
  uint64_t group = 0;  ///< A hash of the members' ranks.
  /// Of a wait: the rank that holds it up, as far as its member knows; -1: nobody known.
  int blamed = -1;
  /// How many waits lead there; 1: its member waits for it itself.
  int distance = 0;
  bool given_up = false;  ///< The wait met its deadline: this is its last word.
};

struct MessageKeyHash {
  size_t operator()(const MessageKey& key) const {
    return static_cast<size_t>((key.tag * 0x9E3779B97F4A7C15U) ^ (key.space * 0xC2B2AE3D27D4EB4FU));
  }
};

enum class FrameKind : uint8_t {
  kEager = 1,    ///< A whole message: payload of `total` bytes.
  kRequest = 2,  ///< A message of `total` bytes waits at the sender as number `id`.
  /// Message `id` may come: its Recv is posted. `space`: 0, or one more than the key of the memory
  /// at address `tag`, into which the sender may write the message itself.
  kGrant = 3,
  kReject = 4,   ///< Message `id` has another size than its Recv.
  kData = 5,     ///< The next `length` bytes of message `id`.
  kCredit = 6,   ///< `total` bytes of eager window are free again.
  kAbort = 7,    ///< The peer aborted its group; payload: why, in text.
  kGoodbye = 8,  ///< The peer left in good order and sends nothing more.
  /// The peer has waited for long in a collective `tag` with the signature in `space`
  /// (call_signature.h): call number `id` of that tag among the members whose ranks hash to
  /// `total`. The lowest bits of `space`: one more than the rank that holds up the peer, as far as
  /// it knows, above it how many waits lead there, and above that whether the peer has given up.
  kWaiting = 9,
  kPlaced = 10,  ///< Message `id` has been written where its grant said.
};

struct FrameHeader {
  uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kEager;
  uint8_t zero = 0;
  uint16_t other_class =
      0;  ///< Frames that the sender began on the pair's other traffic class before.
  uint32_t generation = 0;  ///< Low 32 bits.
  uint32_t length = 0;
  uint64_t tag = 0;
  uint64_t space = 0;
  uint64_t id = 0;
  uint64_t total = 0;

  static constexpr uint32_t kMagic = 0x314C4448;  // "HDL1"
};
static_assert(sizeof(FrameHeader) == 48);

/// Messages up to this travel at once, without asking, within the window below.
inline constexpr size_t kEagerBytes = size_t{64} << 10;
/// Those from this size on ask even so if a device may carry them from buffer to buffer.
inline constexpr size_t kPlacedBytes = size_t{32} << 10;
/// Eager bytes that may lie unmatched at a receiver, by peer. Each message counts its bytes and a
/// header.
inline constexpr size_t kEagerWindow = size_t{1} << 20;
/// Largest payload of a kData frame.
inline constexpr size_t kChunkBytes = size_t{256} << 10;
/// Messages that may wait for a grant at once, by peer; further ones wait unannounced.
inline constexpr size_t kRequestLimit = 1024;
inline constexpr size_t kAbortTextBytes = 512;

inline size_t EagerCost(size_t bytes) {
  return bytes + sizeof(FrameHeader);
}

/// Errors: kDataLoss for a header that no peer of this generation sends.
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
