/// \file
/// Byte planes, HDF5's shuffle filter: byte 0 of every element, then byte 1, ….
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::checkpoint {

inline constexpr size_t kMaxElementBytes = 8;

/// The beginnings of the element_size planes of a run of elements, one plane for each byte.
using PlanesIn = std::array<const std::byte*, kMaxElementBytes>;
using PlanesOut = std::array<std::byte*, kMaxElementBytes>;

/// Computes planes[p][i] = in[i * element_size + p] for `count` elements of 1, 2, 4 or 8 bytes.
void Shuffle(const std::byte* in, size_t count, int64_t element_size, const PlanesOut& planes);
/// Inverts Shuffle.
void Unshuffle(const PlanesIn& planes, size_t count, int64_t element_size, std::byte* out);

/// Shuffles `in` into consecutive planes: out[plane * n + i] = in[i * element_size + plane] for n
/// elements. Both sizes are equal, a multiple of element_size.
void Shuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out);
void Unshuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out);

}  // namespace heddle::checkpoint
