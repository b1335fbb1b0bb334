/// \file
/// Conversions between fp32 and the 16-bit floats: bf16 (8 bits of exponent, 7 of fraction) and
/// IEEE 754's fp16 (5 and 10). Widening is exact. Rounding is to nearest, ties to even; values that
/// are too large become infinity; a NaN becomes a quiet NaN with the upper bits of its payload, as
/// in processors. All functions are pure and have no branches, so that compilers vectorise loops
/// over them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor/dtype.h"

namespace heddle {

inline constexpr uint32_t kInfinityBits = 0x7F800000;

/// `wanted ? a : b` without a branch; both are computed.
constexpr uint32_t SelectBits(bool wanted, uint32_t a, uint32_t b) {
  const uint32_t mask = 0U - static_cast<uint32_t>(wanted);
  return (a & mask) | (b & ~mask);
}

inline float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFU) > kInfinityBits;
  const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return static_cast<uint16_t>(SelectBits(is_nan, bits | 0x400000U, rounded) >> 16);
}

inline float FromF16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  // Zero and subnormal numbers are multiples of 2^-24, which fp32 holds as normal ones.
  const float multiple = static_cast<float>(static_cast<int32_t>(fraction)) * 0x1.0p-24F;
  const uint32_t wide = SelectBits(exponent == 31, 255U, exponent + 112U);
  return std::bit_cast<float>(sign | SelectBits(exponent == 0, std::bit_cast<uint32_t>(multiple),
                                                (wide << 23) | (fraction << 13)));
}

inline uint16_t ToF16(float value) {
  constexpr uint32_t kFirstNormal = 0x38800000;  // 2^-14
  constexpr uint32_t kFirstHuge = 0x477FF000;    // 65520: rounds to infinity, as all above.
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t normal = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
  // Below 2^-14 the unit is 2^-24, which is that of 0.5 in fp32: adding 0.5 rounds.
  const float small = std::bit_cast<float>(std::min(magnitude, kFirstNormal)) + 0.5F;
  const uint32_t subnormal = std::bit_cast<uint32_t>(small) - 0x3F000000U;
  const uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  const uint32_t finite = SelectBits(magnitude < kFirstNormal, subnormal, normal);
  const uint32_t number = SelectBits(magnitude >= kFirstHuge, 0x7C00U, finite);
  return static_cast<uint16_t>(sign | SelectBits(magnitude > kInfinityBits, nan, number));
}

/// Widens all elements of `in`, of type `narrow` (bf16 or fp16), into `out`, which has room for
/// them. The buffers may be unaligned.
void WidenToF32(std::span<const std::byte> in, DType narrow, std::span<std::byte> out);
/// Rounds all fp32 elements of `in` to `narrow` (bf16 or fp16) into `out`, which has room for them.
/// The buffers may be unaligned.
void RoundFromF32(std::span<const std::byte> in, std::span<std::byte> out, DType narrow);

}  // namespace heddle
