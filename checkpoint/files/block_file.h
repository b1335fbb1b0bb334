/// \file
/// Writing a file whose hash is known at its end without reading it again, and whose blocks go to
/// storage past the kernel's page cache where the file system lets them: the cache would copy each
/// byte once more, and drop for it what other programs need there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "checkpoint/files/file_access.h"

namespace heddle::checkpoint {

/// A file of blocks (file_access.h's kHashBlockBytes). A few of them are in memory: the first, and
/// those written last, until they are full. Writes may come in any order, but each that comes back
/// to a block which has left memory reads and writes that block again. Thread: one caller at a
/// time.
class BlockFile {
 public:
  /// Creates or truncates `path`. Not `direct`: through the page cache, as where the file system
  /// wants it so. Errors: those of open(2).
  static Result<std::unique_ptr<BlockFile>> Create(const std::string& path, bool direct = true);
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  /// Past the end, and where nothing was written, there are zeros.
  void Read(int64_t offset, std::span<std::byte> out);
  void Write(int64_t offset, std::span<const std::byte> bytes);
  /// Hands blocks that are full to the kernel, which may take as long as the disk. Without it they
  /// go when the memory is needed for others.
  void FlushFull();
  /// Cuts the file off, or makes it longer by zeros.
  void Resize(int64_t bytes);
  int64_t bytes() const { return bytes_; }

  /// The first failure of the calls above; after it they do nothing, and reads give zeros. Disk
  /// full, quota and file size limit: kResourceExhausted; no memory: the same.
  const Status& status() const { return status_; }

  /// Hands the rest to the kernel: the content is final. Its hash is HashFile's. Errors: status().
  Result<FileRecord> Finish();
  /// After Finish: waits until the file is on storage. Errors: those of fsync, which is never
  /// repeated: the kernel reports a failure once.
  Status Sync();

 private:
  struct Block;
  BlockFile(std::string path, UniqueFd fd, bool direct);
  /// Hash and length of a block when it was last written out; no length: it never was.
  struct Hashed {
    int64_t size = 0;
    Hash128Bytes hash = {};
  };
  int64_t SizeOf(int64_t index) const;
  Block* Get(int64_t index);
  Status Load(Block& block);
  void Flush(Block& block);
  Status WriteOut(const Block& block, int64_t size);
  void Fail(const Status& status);

  const std::string path_;
  const UniqueFd fd_;
  bool direct_;
  int64_t bytes_ = 0;
  int64_t used_ = 0;  ///< Counts uses of blocks.
  Status status_;
  std::vector<std::unique_ptr<Block>> blocks_;  ///< In memory.
  std::vector<Hashed> hashes_;                  ///< By block.
};

}  // namespace heddle::checkpoint
