#include "comm/message/call_signature.h"

#include <array>

#include <fmt/format.h>

namespace heddle::comm {

namespace {

// From the top: kind (4 bits), element type (3), operation (2), urgency (1), detail (12).
constexpr int kDetailBits = 12;
constexpr int kUrgencyBits = 1;
constexpr int kOpBits = 2;
constexpr int kTypeBits = 3;
constexpr int kOpAt = kDetailBits + kUrgencyBits;
constexpr int kTypeAt = kOpAt + kOpBits;
constexpr int kKindAt = kTypeAt + kTypeBits;
/// A broadcast's detail: the root, then its size.
constexpr int kSizeBits = 3;

constexpr uint32_t Mask(int bits) {
  return (1U << bits) - 1;
}

struct Fields {
  uint32_t kind = 0;
  uint32_t dtype = 0;
  uint32_t op = 0;
  uint32_t urgency = 0;
  uint32_t root = 0;
  uint32_t counts = 0;
};

Fields Decode(uint32_t signature) {
  Fields fields;
  const uint32_t detail = signature & Mask(kDetailBits);
  fields.kind = signature >> kKindAt;
  fields.dtype = (signature >> kTypeAt) & Mask(kTypeBits);
  fields.op = (signature >> kOpAt) & Mask(kOpBits);
  fields.urgency = (signature >> kDetailBits) & Mask(kUrgencyBits);
  const bool rooted = fields.kind == static_cast<uint32_t>(CallKind::kBroadcast);
  fields.root = rooted ? detail >> kSizeBits : 0;
  fields.counts = rooted ? detail & Mask(kSizeBits) : detail;
  return fields;
}

std::string_view KindName(uint32_t kind) {
  constexpr std::array<std::string_view, 10> kNames = {"something unknown",
                                                       "barrier",
                                                       "all-gather of bytes",
                                                       "all-reduce",
                                                       "reduce-scatter",
                                                       "all-gather",
                                                       "broadcast",
                                                       "all-to-all",
                                                       "reproducible reduction",
                                                       "reproducible reduce-scatter"};
  return kNames[kind < kNames.size() ? kind : 0];
}

std::string TypeName(uint32_t dtype) {
  return dtype <= static_cast<uint32_t>(DType::kU8)
             ? std::string(DTypeName(static_cast<DType>(dtype)))
             : fmt::format("{}", dtype);
}

std::string_view OpName(uint32_t op) {
  constexpr std::array<std::string_view, 4> kNames = {"sum", "max", "min", "unknown"};
  return kNames[op & 3U];
}

std::string_view UrgencyName(uint32_t urgency) {
  return urgency == 0 ? "bulk" : "urgent";
}

}  // namespace

std::string_view CallName(uint32_t signature) {
  return KindName(Decode(signature).kind);
}

uint32_t EncodeSignature(const CallSignature& signature) {
  const bool rooted = signature.kind == CallKind::kBroadcast;
  const auto counts = static_cast<uint32_t>(signature.counts ^ (signature.counts >> 32));
  const uint32_t detail =
      rooted ? ((signature.root << kSizeBits) | (counts & Mask(kSizeBits))) & Mask(kDetailBits)
             : counts & Mask(kDetailBits);
  return (static_cast<uint32_t>(signature.kind) << kKindAt) |
         (static_cast<uint32_t>(signature.dtype) << kTypeAt) |
         (static_cast<uint32_t>(signature.op) << kOpAt) |
         (static_cast<uint32_t>(signature.urgent) << kDetailBits) | detail;
}

std::string DescribeConflict(const std::string& name,
                             uint32_t signature,
                             const std::string& other_name,
                             uint32_t other_signature) {
  const Fields own = Decode(signature);
  const Fields other = Decode(other_signature);
  if (own.kind != other.kind) {
    return fmt::format("{} calls {}, {} calls {}", name, KindName(own.kind), other_name,
                       KindName(other.kind));
  }
  const std::string_view kind = KindName(own.kind);
  if (own.dtype != other.dtype) {
    return fmt::format("{} calls {} with dtype {}, {} with dtype {}", name, kind,
                       TypeName(own.dtype), other_name, TypeName(other.dtype));
  }
  if (own.op != other.op) {
    return fmt::format("{} calls {} with op {}, {} with op {}", name, kind, OpName(own.op),
                       other_name, OpName(other.op));
  }
  if (own.urgency != other.urgency) {
    return fmt::format("{} calls {} as {}, {} as {}", name, kind, UrgencyName(own.urgency),
                       other_name, UrgencyName(other.urgency));
  }
  if (own.root != other.root) {
    return fmt::format("{} calls {} with root {}, {} with root {}", name, kind, own.root,
                       other_name, other.root);
  }
  return fmt::format("{} and {} call {} with different counts (or groups)", name, other_name, kind);
}

}  // namespace heddle::comm
