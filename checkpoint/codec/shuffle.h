/// \file
/// Byte planes, HDF5's shuffle filter: byte 0 of every element, then byte 1, ….
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::checkpoint {

inline constexpr size_t kMaximumElementBytes = 8;

/// Where each plane of a run of elements begins; one of element_size of them for each byte.
using PlanesIn = std::array<const std::byte*, kMaximumElementBytes>;
using PlanesOut = std::array<std::byte*, kMaximumElementBytes>;

/// planes[p][i] = in[i * element_size + p] for `count` elements of 1, 2, 4 or 8 bytes.
void Shuffle(const std::byte* in, size_t count, int64_t element_size, const PlanesOut& planes);
/// The inverse.
void Unshuffle(const PlanesIn& planes, size_t count, int64_t element_size, std::byte* out);

/// The same with planes side by side: out[plane * n + i] = in[i * element_size + plane]; sizes are
/// equal, a multiple of element_size.
void Shuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out);
void Unshuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out);

}  // namespace heddle::checkpoint
