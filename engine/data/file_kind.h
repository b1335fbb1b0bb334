/// \file
/// What a file is, by its first bytes, where it was to hold text or nothing but token ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace heddle::data {

/// So many bytes of a file's beginning tell its kind.
inline constexpr int64_t kHeadBytes = 4096;

/// The kind of a file of `bytes` bytes that begins with `head`, in words ("a NumPy array"). None:
/// it begins as no file that this function knows. Bare ids begin so by chance in less than one file
/// of 10^8.
std::optional<std::string_view> KindOfFile(std::span<const std::byte> head, int64_t bytes);

/// True if a file of `bytes` bytes that begins with `head` is a pointer of Git LFS: the few lines
/// that stand for a file whose content has not been fetched.
bool IsLfsPointer(std::span<const std::byte> head, int64_t bytes);

/// The bytes of each id of a file that begins with `head`, as far as they show: 4 or 8 where the
/// upper halves of all ids are zero and the file is read as narrower ones; else `token_bytes`. At
/// least 64 ids are needed to tell.
int64_t WidthOfIds(std::span<const std::byte> head, int64_t token_bytes);

}  // namespace heddle::data
