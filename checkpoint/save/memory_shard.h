/// \file
/// A save whose chunks lie in memory and not in a file: one worker's shard of a snapshot, in that
/// worker's memory or in that of another worker that holds a replica. Data from another worker is
/// validated here before anything is allocated or read by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "checkpoint/files/chunk_sink.h"
#include "checkpoint/files/staging.h"
#include "checkpoint/format/types.h"
#include "checkpoint/read/reader.h"

namespace heddle::checkpoint {

/// A shard in memory. Thread: written by one thread, then constant and read by any.
struct MemoryShard {
  FilePart part;         ///< Addresses are offsets into `memory`; file.bytes bytes are used.
  StagingBuffer memory;  ///< Kept between snapshots, because fresh pages are slow.
  std::span<const std::byte> bytes() const {
    return {memory.data(), static_cast<size_t>(part.file.bytes)};
  }
};

/// A sink that appends chunks to `memory`, which grows.
class AppendingSink : public ChunkSink {
 public:
  explicit AppendingSink(StagingBuffer& memory) : memory_(memory) {}
  Status BeginDataset(const std::string& dataset,
                      const StoredBox& stored,
                      const Shape& chunk) override;
  Result<int64_t> WriteChunk(const Shape& offset, std::span<const std::byte> bytes) override;
  Status EndDataset() override;
  int64_t used() const { return used_; }

 private:
  StagingBuffer& memory_;
  int64_t used_ = 0;
};

/// A sink for chunks that are in `memory` already; it returns their offsets.
class InPlaceSink : public ChunkSink {
 public:
  explicit InPlaceSink(const StagingBuffer& memory) : memory_(memory) {}
  Status BeginDataset(const std::string& dataset,
                      const StoredBox& stored,
                      const Shape& chunk) override;
  Result<int64_t> WriteChunk(const Shape& offset, std::span<const std::byte> bytes) override;
  Status EndDataset() override;

 private:
  const StagingBuffer& memory_;
};

/// Upper bounds of the sizes of a part, with chunks of 16 KiB or more; they bound the memory that a
/// receiver allocates.
struct PartLimits {
  int64_t raw_bytes = 0;    ///< Exact bytes of the elements.
  int64_t bytes = 0;        ///< The most bytes of the chunks.
  int64_t description = 0;  ///< The most bytes of EncodeMemoryShard's result.
};
/// The limits of a part of `boxes`.
PartLimits LimitsOf(std::span<const StoredBox> boxes);

/// Encodes the description of a shard for its holder, without the fields that only files have. It
/// is binary, not the text of EncodePart (checkpoint/format/manifest.h), because a snapshot may be
/// taken at every step.
Bytes EncodeMemoryShard(const FilePart& part);

/// Decodes a description of EncodeMemoryShard, to be validated by CheckMemoryShard. Errors:
/// kDataLoss.
Result<FilePart> DecodeMemoryShard(std::span<const std::byte> description);

/// Checks that the part has exactly `boxes`, in any order, with all their elements stored exactly,
/// and that its chunks lie within its bytes. The bytes are not read; a reader compares every chunk
/// with its hash. Errors: kDataLoss.
Status CheckMemoryShard(const FilePart& part, std::span<const StoredBox> boxes);

/// Makes a reader of any boxes of the parts of one snapshot. The parts' boxes are disjoint and need
/// not cover the state. Precondition: this process made the parts, or they passed CheckMemoryShard.
Result<std::unique_ptr<Reader>> ReaderOver(
    const std::vector<std::shared_ptr<const MemoryShard>>& parts);

}  // namespace heddle::checkpoint
