/// \file
/// The header of a safetensors file: 8 bytes of length, then JSON that names each tensor's type,
/// shape and place. The rules are those of the format's own library (huggingface/safetensors,
/// README and src/tensor.rs), and stricter where it is lenient: a name that comes twice is refused,
/// and a header is at most 32 MiB (the library's limit is 100 MB; half a million tensors fit).
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
/// The header's length, before the header.
inline constexpr int64_t kSafetensorsPrefix = 8;

struct SafetensorsEntry {
  FileTensor tensor;
  int64_t begin = 0;  ///< Of its bytes, from the end of the header.
};

/// Reads the JSON of a header whose file has `data_bytes` bytes behind it. The entries, in the
/// order of their bytes, lie one behind the other and fill the data exactly. Thread: pure. Errors:
/// kDataLoss naming the tensor.
Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view json,
                                                             int64_t data_bytes);

/// A file to be written: its first bytes (length and header) and where each tensor begins in it.
struct SafetensorsLayout {
  std::string head;
  std::vector<int64_t> begin;  ///< By tensor of the argument, from the start of the file.
  int64_t file_bytes = 0;
};

/// Lays `tensors` out as the format's own library does: wide elements first, then by name, the
/// header padded so that the elements are aligned to 8 bytes. Errors: kInvalidArgument for a type
/// that the format lacks, a name that comes twice or that is "__metadata__".
Result<SafetensorsLayout> LayOutSafetensors(std::span<const OutputTensor> tensors);

}  // namespace heddle::checkpoint
