/// \file
/// Reads, checks and decodes single chunks; shared by reading and verifying.
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

/// Thread: one caller at a time; keeps its buffers between chunks.
class ChunkReader {
 public:
  /// The decoded chunk `index` of `box` in the tensor's element type, padding included but of a raw
  /// box, valid until the next call. The records come from a validated manifest. Errors: kDataLoss
  /// naming file, tensor and chunk; those of reading.
  Result<std::span<const std::byte>> Read(const SourceFile& file,
                                          const TensorRecord& tensor,
                                          const BoxRecord& box,
                                          int64_t index);

  /// Only compares the stored bytes with the chunk's hash. Errors: as Read.
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
