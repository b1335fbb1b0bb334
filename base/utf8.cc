#include "base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

namespace heddle {
namespace {

/// Bytes of the character that `text` begins with; 0: it is none.
size_t CharacterSize(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) {
    return 1;
  }
  const size_t size = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < size) {
    return 0;
  }
  uint32_t code = byte(0) & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) {
      return 0;
    }
    code = code << 6U | (byte(i) & 0x3FU);
  }
  const uint32_t least = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
  return code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : size;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size == 0) {
      return false;
    }
    text.remove_prefix(size);
  }
  return true;
}

std::string ToUtf8(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<uint8_t>(text.front()));
    }
    shown += text.substr(0, size);
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return shown;
}

Status CheckUtf8(std::string_view what, std::string_view text) {
  return IsUtf8(text)
             ? Status::Ok()
             : InvalidArgumentError("{}: not UTF-8, which other processes need: {}", what, text);
}

}  // namespace heddle
