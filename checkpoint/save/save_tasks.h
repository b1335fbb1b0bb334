/// \file
/// The data of a save: the boxes of one snapshot, their chunks, and the encoding of one chunk. The
/// writer (checkpoint/save/writer.h) passes these to its threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/codec/codec.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/types.h"
#include "checkpoint/save/deferred_copy.h"
#include "checkpoint/save/writer.h"

namespace heddle::checkpoint {

/// A low-precision copy and its fp32 master. The first thread that encodes a chunk of the copy
/// compares all elements with those of the master, rounded to nearest even: not while training
/// waits, and before anything of the box is written.
struct Derivation {
  const std::byte* master = nullptr;
  Box master_box;  ///< Contains the copy's box.
  std::once_flag compared;
  bool holds = false;  ///< Whether all elements are equal; constant once compared.
};

/// A box with elements.
struct SaveItem {
  StoredBox stored;
  const std::byte* bytes = nullptr;
  ChunkGrid grid;
  Shape chunk;
  std::string dataset;
  int64_t first_task = 0;                            ///< Number of the task of the first chunk.
  std::shared_ptr<Derivation> derivation = nullptr;  ///< Null: the box is stored in any case.
};

/// One save; constant once the threads have it.
struct Save {
  SaveRequest request;
  std::vector<SaveItem> items;
  std::vector<StoredBox> empty;     ///< Boxes without elements.
  std::vector<int64_t> task_items;  ///< The item of each task.
  bool staged = false;              ///< Items lie in staging memory, not in the caller's memory.
  /// If staged, one copy per item, which is made before a task of the item is encoded.
  std::vector<DeferredCopy::Piece> copies;
  bool raw = false;  ///< Chunks are not encoded or moved: the staging memory is the part.
  int64_t raw_bytes = 0;
  int64_t staged_bytes = 0;  ///< Bytes used of the staging memory.
  Time started;
  Writer::Done done;
  std::string folder;
  std::string file;
  std::string path() const { return folder + "/" + file; }
  int64_t tasks() const { return static_cast<int64_t>(task_items.size()); }
};

/// Working memory of an encoding thread.
struct EncodeMemory {
  std::vector<std::byte> tile;
  std::vector<std::byte> narrow;
};

/// An encoded chunk. `memory` keeps its capacity from chunk to chunk.
struct Encoded {
  bool derived = false;  ///< All chunks of the box are derived; only the digest is recorded.
  std::vector<std::byte> memory;
  std::span<const std::byte> bytes;  ///< Bytes in `memory` or, for a raw save, of the item.
  uint64_t hash = 0;
  Digest digest;
  Status status;
};

/// Bytes of staging memory that `boxes` need. Errors: kInvalidArgument (a box that cannot be
/// stored).
Result<int64_t> StagingBytes(std::span<const BoxView> boxes);

/// Makes the save with its tasks. If `staging`, of StagingBytes bytes, is not null, the items lie
/// there, and Save::copies lists the copies to make. Errors: kInvalidArgument (a repeated box, or a
/// box in memory that is to be rounded).
Result<std::shared_ptr<Save>> PrepareSave(const WriterOptions& options,
                                          const SaveRequest& request,
                                          std::span<const BoxView> boxes,
                                          std::byte* staging);

/// Encodes chunk `task` of the save into `out`. Errors are in `out.status`: kResourceExhausted (no
/// memory). `memory` belongs to the calling thread. Chunks of a low-precision copy also read the
/// master's elements.
void EncodeTask(
    const Save& save, int64_t task, ChunkEncoder& encoder, EncodeMemory& memory, Encoded& out);

}  // namespace heddle::checkpoint
