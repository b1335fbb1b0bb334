/// \file
/// The header of safetensors files: whatever is accepted fills the data exactly, one tensor behind
/// the other, each with as many bytes as its shape and type take. The input is the whole file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

#include "checkpoint/formats/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using heddle::checkpoint::ParseSafetensorsHeader;
  uint64_t length = 0;
  if (size < sizeof(length)) {
    return 0;
  }
  std::memcpy(&length, data, sizeof(length));
  length = std::min<uint64_t>(length, size - sizeof(length));
  const std::string_view header(reinterpret_cast<const char*>(data) + sizeof(length), length);
  const auto left = static_cast<int64_t>(size - sizeof(length) - length);
  const auto entries = ParseSafetensorsHeader(header, left);
  if (!entries.ok()) {
    return 0;
  }
  int64_t end = 0;
  std::set<std::string_view> names;
  for (const auto& entry : *entries) {
    const auto& tensor = entry.tensor;
    const bool fits = !tensor.dtype || tensor.bytes == heddle::ElementCount(tensor.shape) *
                                                           heddle::SizeOf(*tensor.dtype);
    if (entry.begin != end || tensor.bytes < 0 || !fits || !names.insert(tensor.name).second) {
      std::abort();
    }
    end += tensor.bytes;
  }
  if (end != left) {
    std::abort();
  }
  return 0;
}
