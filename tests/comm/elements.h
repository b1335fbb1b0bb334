/// \file
/// Elements of collectives under test: small integers, which every type holds exactly, so that a
/// reference needs no order of additions.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "comm/communicator.h"

namespace heddle::comm {

inline constexpr std::array kElementTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                                             DType::kI32, DType::kI64,  DType::kU8};
inline constexpr std::array kReduceOps = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

/// Element `i` of what `rank` holds: -5 … 5.
inline int64_t ElementOf(uint64_t seed, int rank, int64_t i) {
  const uint64_t mixed =
      (seed + static_cast<uint64_t>(rank) * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(i)) *
      0xD6E8FEB86659FD93U;
  return static_cast<int64_t>((mixed >> 40) % 11) - 5;
}

/// The bits of a 16-bit IEEE number; integers up to 2048 in magnitude.
inline uint16_t HalfOf(int64_t value) {
  if (value == 0) {
    return 0;
  }
  const auto magnitude = static_cast<uint32_t>(std::abs(value));
  const auto exponent = static_cast<uint32_t>(std::bit_width(magnitude)) - 1;
  const uint32_t mantissa = (magnitude << (10 - exponent)) & 0x3FFU;
  return static_cast<uint16_t>((value < 0 ? 0x8000U : 0U) | ((exponent + 15) << 10) | mantissa);
}

template <typename T>
void PutAs(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

/// Writes SizeOf(dtype) bytes.
inline void PutElement(std::byte* at, DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kF32:
      return PutAs(at, static_cast<float>(value));
    case DType::kF64:
      return PutAs(at, static_cast<double>(value));
    case DType::kI32:
      return PutAs(at, static_cast<int32_t>(value));
    case DType::kI64:
      return PutAs(at, value);
    case DType::kU8:
      return PutAs(at, static_cast<uint8_t>(value));
    case DType::kF16:
      return PutAs(at, HalfOf(value));
    case DType::kBF16:
      return PutAs(at,
                   static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
  }
}

}  // namespace heddle::comm
