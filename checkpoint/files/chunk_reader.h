/// \file
/// Reads, checks and decodes single chunks; used for reading and verifying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "checkpoint/codec/codec.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// A reader of single chunks. Thread: one caller at a time; keeps its buffers between chunks.
class ChunkReader {
 public:
  /// Reads chunk `index` of `box` and returns its elements in the tensor's type, valid until the
  /// next call. Padding is included, except for a raw box, which has none. The records come from a
  /// validated manifest. Errors: kDataLoss naming file, tensor and chunk; those of reading.
  Result<std::span<const std::byte>> Read(const SourceFile& file,
                                          const TensorRecord& tensor,
                                          const BoxRecord& box,
                                          int64_t index);

  /// Compares the stored bytes with the chunk's hash, without decoding them. Errors: those of Read.
  Status CheckHash(const SourceFile& file,
                   const TensorRecord& tensor,
                   const BoxRecord& box,
                   int64_t index);

 private:
  std::vector<std::byte> stored_;
  std::vector<std::byte> raw_;
  std::vector<std::byte> wide_;
  ChunkDecoder decoder_;
};

}  // namespace heddle::checkpoint
