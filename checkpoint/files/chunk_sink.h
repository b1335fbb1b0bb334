/// \file
/// The destination of the chunks of a save: a file (checkpoint/files/hdf5_file.h) or memory
/// (checkpoint/save/memory_shard.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// A destination of chunks. Thread: one caller at a time.
class ChunkSink {
 public:
  ChunkSink() = default;
  virtual ~ChunkSink() = default;
  ChunkSink(const ChunkSink&) = delete;
  ChunkSink& operator=(const ChunkSink&) = delete;

  /// Begins the dataset of a box, which has elements. At most one dataset is open at a time.
  virtual Status BeginDataset(const std::string& dataset,
                              const StoredBox& stored,
                              const Shape& chunk) = 0;
  /// Stores the encoded bytes of the chunk that starts at `offset` (in the box's coordinates) and
  /// returns their address.
  virtual Result<int64_t> WriteChunk(const Shape& offset, std::span<const std::byte> bytes) = 0;
  virtual Status EndDataset() = 0;
};

}  // namespace heddle::checkpoint
