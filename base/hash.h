/// \file
/// Non-cryptographic hashes (XXH3) for checksums and keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t Hash64(std::string_view text, uint64_t seed = 0);

/// A 128-bit hash, most significant byte first.
using Hash128Bytes = std::array<std::byte, 16>;
Hash128Bytes Hash128(std::span<const std::byte> bytes);

/// Hash128 as 32 lower-case hexadecimal digits.
std::string Hash128Hex(std::span<const std::byte> bytes);

}  // namespace heddle
