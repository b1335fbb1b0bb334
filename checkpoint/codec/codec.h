/// \file
/// The codec of a chunk: byte planes (HDF5's shuffle filter), then one zstd frame with entropy
/// coding only. Matches are rare in weights, so that zstd's levels would only cost time and ratio;
/// matches are searched only if a sample of the chunk shows runs of zeros. A frame's blocks end
/// where a plane ends, because planes have different statistics. The frame has its content size and
/// no dictionary, as the registered HDF5 filter 32015 expects, and no checksum, because the writer
/// of a chunk hashes the stored bytes. A plane whose bytes look random in a sample is stored
/// without calling zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace heddle::checkpoint {

/// HDF5's number of the zstd filter.
inline constexpr int kZstdFilter = 32015;

/// The most bytes that Encode needs for a chunk of `raw_bytes`.
int64_t EncodedBound(int64_t raw_bytes);

/// Encodes chunks. Thread: one caller at a time; keeps its working memory between chunks.
class ChunkEncoder {
 public:
  ChunkEncoder();
  ~ChunkEncoder();
  /// Encodes `raw` into `out`, which holds EncodedBound(raw.size()) bytes; returns the bytes used.
  Result<int64_t> Encode(std::span<const std::byte> raw,
                         int64_t element_size,
                         std::span<std::byte> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes chunks. Thread: one caller at a time.
class ChunkDecoder {
 public:
  ChunkDecoder();
  ~ChunkDecoder();
  /// Decodes exactly `raw.size()` bytes. Errors: kDataLoss for anything but one frame without a
  /// dictionary whose content has that size; `raw` is unspecified then.
  Status Decode(std::span<const std::byte> stored, int64_t element_size, std::span<std::byte> raw);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::checkpoint
