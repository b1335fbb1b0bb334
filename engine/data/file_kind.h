/// \file
/// Detects by its first bytes that a file is not a plain array of token ids, or not the file itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace heddle::data {

/// Number of bytes at a file's beginning that are needed to detect its kind.
inline constexpr int64_t kHeadBytes = 4096;

/// The kind of a file of `bytes` bytes that begins with `head`, as text ("a NumPy array"). None: no
/// kind that this function knows. The probability that plain ids begin like a known kind is less
/// than 10^-8.
std::optional<std::string_view> KindOfFile(std::span<const std::byte> head, int64_t bytes);

/// True if a file of `bytes` bytes that begins with `head` is a pointer of Git LFS: the few lines
/// that stand for a file whose content has not been fetched.
bool IsLfsPointer(std::span<const std::byte> head, int64_t bytes);

/// The bytes per id of a file that begins with `head`, as far as can be detected: 4 or 8 if the
/// file, read as narrower ids, has zeros in the upper halves of all wider ids; else `token_bytes`.
/// At least 64 ids are needed for the detection.
int64_t WidthOfIds(std::span<const std::byte> head, int64_t token_bytes);

}  // namespace heddle::data
