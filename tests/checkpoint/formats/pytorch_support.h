/// \file
/// Pickles and archives made by hand: what the tests of PyTorch's files share.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status.h"
#include "base/tensor/shape.h"
#include "checkpoint/formats/pytorch/zip.h"

namespace heddle::checkpoint {

/// Opcodes of pickle protocol 2, as text to be joined.
namespace opcodes {

inline std::string Raw(const auto& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string Text(std::string_view text) {
  return "X" + Raw(static_cast<uint32_t>(text.size())) + std::string(text);
}
inline std::string Int(int64_t number) {
  return "\x8A" + std::string(1, '\x08') + Raw(number);
}
inline std::string Tuple(const Shape& numbers) {
  std::string tuple = "(";
  for (const int64_t number : numbers) {
    tuple += Int(number);
  }
  return tuple + "t";
}
inline std::string Global(std::string_view module, std::string_view name) {
  return fmt::format("c{}\n{}\n", module, name);
}
inline std::string Storage(std::string_view type, std::string_view key, int64_t elements) {
  return "(" + Text("storage") + Global("torch", type) + Text(key) + Text("cpu") + Int(elements) +
         "tQ";
}
inline std::string Tensor(const std::string& storage,
                          int64_t offset,
                          const Shape& shape,
                          const Shape& stride) {
  return Global("torch._utils", "_rebuild_tensor_v2") + "(" + storage + Int(offset) + Tuple(shape) +
         Tuple(stride) + "\x89" + Global("collections", "OrderedDict") + ")RtR";
}
/// Keys and values, already encoded.
inline std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string dict = "}(";
  for (const auto& [key, value] : items) {
    dict += key + value;
  }
  return dict + "u";
}
inline std::string Pickle(const std::string& value) {
  return "\x80\x02" + value + ".";
}

}  // namespace opcodes

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void Spill(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
}

/// An archive of these entries, by names within "archive/".
inline Status WriteArchive(const std::string& path,
                           const std::vector<std::pair<std::string, std::string>>& entries) {
  HEDDLE_ASSIGN_OR_RETURN(auto zip, ZipWriter::Create(path));
  for (const auto& [name, data] : entries) {
    HEDDLE_RETURN_IF_ERROR(zip.Begin("archive/" + name, static_cast<int64_t>(data.size())));
    HEDDLE_RETURN_IF_ERROR(zip.Append(AsBytes(data)));
  }
  return zip.Finish();
}

}  // namespace heddle::checkpoint
