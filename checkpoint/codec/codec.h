/// \file
/// One chunk's codec: byte planes (HDF5's shuffle filter), then one zstd frame that codes by
/// entropy alone: matches are rare in weights, so zstd's levels only cost time and ratio there.
/// They are searched only where a sample of the chunk shows stretches of zeros. A frame's blocks
/// end where a plane ends, because planes have unlike statistics. The frame has its content size
/// and no dictionary, as the registered HDF5 filter 32015 expects, and no checksum: whoever stores
/// a chunk hashes the stored bytes. A plane whose bytes are as good as random, by a sample, is
/// stored without asking zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace heddle::checkpoint {

/// The filters as HDF5 numbers them.
inline constexpr int kZstdFilter = 32015;

/// Bytes that Encode may need for a chunk of `raw_bytes`.
int64_t EncodedBound(int64_t raw_bytes);

/// Thread: one caller at a time; keeps its working memory between chunks.
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

/// Thread: one caller at a time.
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
