/// \file
/// A save whose chunks lie in memory and not in a file: one worker's shard of a snapshot, as it
/// holds it itself or keeps it for another. What comes from another worker is checked here before
/// anything is allocated or read by it.
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

/// Written by one thread; then constant, and read by any.
struct MemoryPart {
  FilePart part;         ///< Addresses are offsets into the memory; file.bytes of it are used.
  StagingBuffer memory;  ///< Kept between snapshots: fresh pages are slow.
  std::span<const std::byte> bytes() const {
    return {memory.data(), static_cast<size_t>(part.file.bytes)};
  }
};

/// Puts chunks one after another into `memory`, which grows.
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

/// For chunks that lie in `memory` already: tells where.
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

/// What a part of `boxes` can need at most, made with chunks of 16 KiB or more: bounds of what a
/// receiver allocates.
struct PartLimits {
  int64_t raw_bytes = 0;    ///< Exactly.
  int64_t bytes = 0;        ///< Of its chunks.
  int64_t description = 0;  ///< Of EncodeMemoryPart.
};
PartLimits LimitsOf(std::span<const StoredBox> boxes);

/// What a holder has to know of a shard: all but what only files have. A snapshot may be taken at
/// every step, so this is not the text of EncodePart (checkpoint/format/manifest.h).
Bytes EncodeMemoryPart(const FilePart& part);

/// Reads it again, to be judged by CheckMemoryPart. Errors: kDataLoss.
Result<FilePart> DecodeMemoryPart(std::span<const std::byte> description);

/// Whether the part has exactly `boxes`, in any order, with all their elements stored exactly, and
/// its chunks lie within its bytes. The bytes are not looked at: every chunk has a hash that a
/// reader checks. Errors: kDataLoss.
Status CheckMemoryPart(const FilePart& part, std::span<const StoredBox> boxes);

/// Reads any boxes out of parts of one snapshot, whose boxes are disjoint; they need not cover the
/// state. Precondition: this process made them, or they passed CheckMemoryPart.
Result<std::unique_ptr<Reader>> ReaderOver(
    const std::vector<std::shared_ptr<const MemoryPart>>& parts);

}  // namespace heddle::checkpoint
