/// \file
/// The header of a safetensors file: 8 bytes of length, then JSON with each tensor's type, shape
/// and position. The rules are those of the format's own library (huggingface/safetensors, README
/// and src/tensor.rs), with two stricter ones: repeated names are refused, and a header has at most
/// 32 MiB (the library's limit is 100 MB; half a million tensors fit).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

inline constexpr int64_t kSafetensorsHeaderLimit = int64_t{32} << 20;
/// Bytes of the header's length, before the header.
inline constexpr int64_t kSafetensorsPrefix = 8;

struct SafetensorsEntry {
  FileTensor tensor;
  int64_t begin = 0;  ///< Offset of the tensor's bytes from the end of the header.
};

/// Parses the JSON of a header that is followed by `data_bytes` bytes. Returns the entries in the
/// order of their bytes, which are contiguous and fill the data exactly. Thread: pure. Errors:
/// kDataLoss naming the tensor.
Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view json,
                                                             int64_t data_bytes);

/// The layout of a file to be written: its first bytes (length and header) and the tensors'
/// offsets.
struct SafetensorsLayout {
  std::string head;
  std::vector<int64_t> begin;  ///< Offset of each tensor from the start of the file.
  int64_t file_bytes = 0;
};

/// Lays `tensors` out as the format's own library does: wide elements first, then by name, with the
/// header padded so that the elements are aligned to 8 bytes. Errors: kInvalidArgument (a type that
/// the format lacks, a repeated name, or the name "__metadata__").
Result<SafetensorsLayout> LayOutSafetensors(std::span<const OutputTensor> tensors);

}  // namespace heddle::checkpoint
