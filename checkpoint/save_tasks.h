/// \file
/// A save as data: the boxes of one snapshot and the chunks they fall into, and the encoding of one
/// chunk. The writer (checkpoint/writer.h) gives these to its threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/codec.h"
#include "checkpoint/layout.h"
#include "checkpoint/types.h"
#include "checkpoint/writer.h"

namespace heddle::checkpoint {

/// A box with elements.
struct SaveItem {
  StoredBox stored;
  const std::byte* bytes = nullptr;
  ChunkGrid grid;
  Shape chunk;
  std::string dataset;
  int64_t first_task = 0;  ///< Its chunks are tasks from here on.
};

/// One save: constant once threads see it.
struct Save {
  SaveRequest request;
  std::vector<SaveItem> items;
  std::vector<StoredBox> empty;     ///< Boxes without elements.
  std::vector<int64_t> task_items;  ///< The item of each task.
  int64_t raw_bytes = 0;
  Time started;
  Writer::Done done;
  std::string folder;
  std::string file;
  std::string path() const { return folder + "/" + file; }
  int64_t tasks() const { return static_cast<int64_t>(task_items.size()); }
};

/// One chunk, ready for the disk. `bytes` keeps its capacity from chunk to chunk.
struct Encoded {
  std::vector<std::byte> bytes;
  int64_t size = 0;
  uint64_t hash = 0;
  Digest digest;
  Status status;
};

/// Bytes of staging memory that `boxes` need. Errors: kInvalidArgument for a box that cannot be
/// stored.
Result<int64_t> StagingBytes(std::span<const BoxView> boxes);

/// Lists the tasks of a save. With `staging`, StagingBytes long, the elements are copied there and
/// the boxes' memory is not used any more. Errors: kInvalidArgument for a box given twice.
Result<std::shared_ptr<Save>> PrepareSave(const WriterOptions& options,
                                          const SaveRequest& request,
                                          std::span<const BoxView> boxes,
                                          std::byte* staging);

/// Encodes chunk `task` of the save into `out`. `tile` is working memory of the calling thread.
void EncodeTask(const Save& save,
                int64_t task,
                ChunkEncoder& encoder,
                std::vector<std::byte>& tile,
                Encoded& out);

}  // namespace heddle::checkpoint
