/// \file
/// Where the chunks of a save go: a file (checkpoint/files/hdf5_file.h) or memory
/// (checkpoint/save/memory_part.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// Thread: one caller at a time.
class ChunkSink {
 public:
  ChunkSink() = default;
  virtual ~ChunkSink() = default;
  ChunkSink(const ChunkSink&) = delete;
  ChunkSink& operator=(const ChunkSink&) = delete;

  /// Begins the chunks of a box, which has elements; one is begun at a time.
  virtual Status BeginDataset(const std::string& dataset,
                              const StoredBox& stored,
                              const Shape& chunk) = 0;
  /// Takes the encoded bytes of the chunk that starts at `offset` (in the box's coordinates);
  /// returns their address.
  virtual Result<int64_t> WriteChunk(const Shape& offset, std::span<const std::byte> bytes) = 0;
  virtual Status EndDataset() = 0;
};

}  // namespace heddle::checkpoint
