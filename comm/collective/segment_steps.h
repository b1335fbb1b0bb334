/// \file
/// Constants and helpers that the collectives in a group's shared segment have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor/dtype.h"
#include "comm/group/segment_call.h"
#include "comm/message/call_signature.h"

namespace heddle::comm {

/// Bytes processed between two checks whether the group has ended.
inline constexpr int64_t kSegmentWorkBytes = int64_t{1} << 20;

/// Bytes of a slice processed at a time, so that a sum is still in the core's cache when it is
/// copied.
inline constexpr int64_t kTileBytes = int64_t{16} << 10;

/// A hash of a call's kind, type, detail and sizes, which must be equal at all members.
inline uint64_t SegmentShapeOf(CallKind kind,
                               DType dtype,
                               uint64_t detail,
                               std::span<const int64_t> sizes) {
  uint64_t shape =
      (static_cast<uint64_t>(kind) << 16) | (static_cast<uint64_t>(dtype) << 8) | detail;
  for (const int64_t size : sizes) {
    shape = (shape ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15U;
    shape ^= shape >> 29;
  }
  return shape;
}

/// Bytes of a cache line; slices begin at cache lines.
inline constexpr int64_t kLine = 64;

/// Even slices of elements, beginning at cache lines.
struct Slices {
  int64_t total = 0;  ///< Bytes.
  int64_t each = 0;

  Slices(int64_t bytes, int members) : total(bytes) {
    const int64_t share = (bytes + members - 1) / members;
    each = (share + kLine - 1) / kLine * kLine;
  }
  int64_t begin(int member) const { return std::min(total, member * each); }
  int64_t size(int member) const { return std::min(total, (member + 1) * each) - begin(member); }
};

inline bool AllShared(const SegmentPlaces& places, int members) {
  return std::none_of(places.begin(), places.begin() + members,
                      [](const std::byte* place) { return place == nullptr; });
}

}  // namespace heddle::comm
