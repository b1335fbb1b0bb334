#include "engine/data/file_kind.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::data {
namespace {

using std::string_view_literals::operator""sv;

constexpr size_t kFewestIds = 64;

struct Magic {
  std::string_view bytes;
  std::string_view kind;
};

// Formats' own documents; llm.c's is 20240520 or 20240801 in a header of 256 four-byte integers, of
// which the second is a version.
constexpr std::array kMagics = {
    Magic{"\x93NUMPY"sv, "a NumPy array"},
    Magic{"PK\x03\x04"sv, "a zip archive (as NumPy's .npz and PyTorch's files are)"},
    Magic{"\x28\xb5\x2f\xfd"sv, "compressed by zstd"},
    Magic{"\xfd"
          "7zXZ\0"sv,
          "compressed by xz"},
    Magic{"\x04\x22\x4d\x18"sv, "compressed by lz4"},
    Magic{"PAR1"sv, "a Parquet file"},
    Magic{"ARROW1\0\0"sv, "an Arrow file"},
    Magic{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    Magic{"SQLite format 3\0"sv, "an SQLite database"},
    Magic{"MMIDIDX\0\0"sv, "an index of Megatron-LM, whose ids are in the .bin file beside it"},
    Magic{"\x88\xd8\x34\x01\x01\0\0\0"sv, "a file of llm.c, with a header of 1024 bytes"},
    Magic{"\xa1\xd9\x34\x01\x01\0\0\0"sv, "a file of llm.c, with a header of 1024 bytes"},
    Magic{"%PDF-"sv, "a PDF document"},
    Magic{"\x7f"
          "ELF"sv,
          "a program"},
};

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Two bytes, the method, and flags of which three bits are reserved.
bool IsGzip(std::string_view head) {
  return head.size() >= 4 && head.starts_with("\x1f\x8b\x08") &&
         (static_cast<uint8_t>(head[3]) & 0xe0) == 0;
}

bool IsBzip2(std::string_view head) {
  return head.size() >= 10 && head.starts_with("BZh") && head[3] >= '1' && head[3] <= '9' &&
         head.substr(4, 6) == "1AY&SY";
}

// The length of a header in JSON, and its first bytes.
bool IsSafetensors(std::string_view head, int64_t bytes) {
  if (head.size() < 10) {
    return false;
  }
  uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  return length >= 2 && length <= static_cast<uint64_t>(bytes) - sizeof(length) &&
         (head.substr(8, 2) == "{\"" || head.substr(8, 2) == "{}");
}

}  // namespace

std::optional<std::string_view> KindOfFile(std::span<const std::byte> head, int64_t bytes) {
  const std::string_view text = Text(head);
  const auto* const found = std::ranges::find_if(
      kMagics, [&](const Magic& magic) { return text.starts_with(magic.bytes); });
  if (found != kMagics.end()) {
    return found->kind;
  }
  if (IsGzip(text)) {
    return "compressed by gzip";
  }
  if (IsBzip2(text)) {
    return "compressed by bzip2";
  }
  return IsSafetensors(text, bytes) ? std::optional("a safetensors file"sv) : std::nullopt;
}

bool IsLfsPointer(std::span<const std::byte> head, int64_t bytes) {
  constexpr int64_t kMaxBytes = 1023;  // By the specification of Git LFS.
  return bytes <= kMaxBytes && Text(head).starts_with("version https://git-lfs.github.com/spec/");
}

int64_t WidthOfIds(std::span<const std::byte> head, int64_t token_bytes) {
  int64_t width = token_bytes;
  for (int64_t wider = 2 * token_bytes; wider <= 8; wider *= 2) {
    const size_t ids = head.size() / static_cast<size_t>(wider);
    if (ids < kFewestIds) {
      break;
    }
    bool any = false;
    for (size_t i = 0; i < ids; ++i) {
      const auto id = head.subspan(i * static_cast<size_t>(wider), static_cast<size_t>(wider));
      const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
      if (!std::ranges::all_of(id.subspan(static_cast<size_t>(token_bytes)), is_zero)) {
        return width;
      }
      any = any || !std::ranges::all_of(id, is_zero);
    }
    width = any ? wider : width;
  }
  return width;
}

}  // namespace heddle::data
