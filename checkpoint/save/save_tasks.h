/// \file
/// A save as data: the boxes of one snapshot and the chunks they fall into, and the encoding of one
/// chunk. The writer (checkpoint/save/writer.h) gives these to its threads.
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

/// A low-precision copy beside its fp32 master. Whether every element is its master's, rounded to
/// nearest even, is found out by the first thread that encodes a chunk of it: not while training
/// waits, and before anything of the box is written.
struct Derivation {
  const std::byte* master = nullptr;
  Box master_box;  ///< Contains the copy's box.
  std::once_flag compared;
  bool holds = false;  ///< Constant once compared.
};

/// A box with elements.
struct SaveItem {
  StoredBox stored;
  const std::byte* bytes = nullptr;
  ChunkGrid grid;
  Shape chunk;
  std::string dataset;
  int64_t first_task = 0;                            ///< Its chunks are tasks from here on.
  std::shared_ptr<Derivation> derivation = nullptr;  ///< Null: it is stored in any case.
};

/// One save: constant once threads see it.
struct Save {
  SaveRequest request;
  std::vector<SaveItem> items;
  std::vector<StoredBox> empty;     ///< Boxes without elements.
  std::vector<int64_t> task_items;  ///< The item of each task.
  bool staged = false;              ///< Items lie in staging memory, not where the caller has them.
  /// Staged, one an item: to be made before a task of the item is encoded.
  std::vector<DeferredCopy::Piece> copies;
  bool raw = false;  ///< Chunks stay as they are, where they are: the staging memory is the part.
  int64_t raw_bytes = 0;
  int64_t staged_bytes = 0;  ///< Of staging memory that is used.
  Time started;
  Writer::Done done;
  std::string folder;
  std::string file;
  std::string path() const { return folder + "/" + file; }
  int64_t tasks() const { return static_cast<int64_t>(task_items.size()); }
};

/// Working memory of a thread that encodes.
struct EncodeMemory {
  std::vector<std::byte> tile;
  std::vector<std::byte> narrow;
};

/// One chunk, ready to be stored. `memory` keeps its capacity from chunk to chunk.
struct Encoded {
  bool derived = false;  ///< As all chunks of its box: there is nothing to write but the digest.
  std::vector<std::byte> memory;
  std::span<const std::byte> bytes;  ///< In `memory` or, of a raw save, where the item lies.
  uint64_t hash = 0;
  Digest digest;
  Status status;
};

/// Bytes of staging memory that `boxes` need. Errors: kInvalidArgument for a box that cannot be
/// stored.
Result<int64_t> StagingBytes(std::span<const BoxView> boxes);

/// Lists the tasks of a save. With `staging`, StagingBytes long, the items lie there, and `copies`
/// tells what has to get there. Errors: kInvalidArgument for a box given twice, or one to be
/// rounded in memory.
Result<std::shared_ptr<Save>> PrepareSave(const WriterOptions& options,
                                          const SaveRequest& request,
                                          std::span<const BoxView> boxes,
                                          std::byte* staging);

/// Encodes chunk `task` of the save into `out`, whose status tells of a failure: kResourceExhausted
/// without memory. `memory` is the calling thread's. A copy's chunks also read its master's
/// elements.
void EncodeTask(
    const Save& save, int64_t task, ChunkEncoder& encoder, EncodeMemory& memory, Encoded& out);

}  // namespace heddle::checkpoint
