/// \file
/// A file for writing whose hash is known at the end without reading it again. Its blocks bypass
/// the kernel's page cache if the file system supports that, because the cache would copy each byte
/// once more and evict pages of other programs.
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

/// A file of blocks of kHashBlockBytes (file_access.h). A few blocks are in memory: the first and
/// the most recently used. Writes may be in any order, but a write to a block that is no longer in
/// memory reads and writes that block again. Thread: one caller at a time.
class BlockFile {
 public:
  /// Creates or truncates `path`. `direct`: bypass the page cache if the file system supports it.
  /// Errors: those of open(2).
  static Result<std::unique_ptr<BlockFile>> Create(const std::string& path, bool direct = true);
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  /// Reads bytes at `offset`; bytes past the end or never written are zeros.
  void Read(int64_t offset, std::span<std::byte> out);
  /// Writes bytes at `offset`, which may extend the file.
  void Write(int64_t offset, std::span<const std::byte> bytes);
  /// Writes the blocks in memory that are full to the file, which may take as long as the disk.
  /// Without it they are written when their memory is needed for other blocks.
  void FlushFull();
  /// Truncates the file, or extends it by zeros.
  void Resize(int64_t bytes);
  int64_t bytes() const { return bytes_; }

  /// The first failure of Read, Write, FlushFull or Resize. After it they have no effect, and reads
  /// return zeros. Errors: kResourceExhausted (disk full, quota, file size limit, no memory),
  /// others by errno.
  const Status& status() const { return status_; }

  /// Writes the remaining blocks; the content is then final. Returns the file's size and its hash,
  /// which is that of HashFile. Errors: status().
  Result<FileRecord> Finish();
  /// Waits until the file is on storage. Precondition: Finish succeeded. Errors: those of fsync,
  /// which is never repeated, because the kernel reports a failure only once.
  Status Sync();

 private:
  struct Block;
  BlockFile(std::string path, UniqueFd fd, bool direct);
  /// Hash and length of a block when it was last written to the file; length 0: never.
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
  int64_t used_ = 0;  ///< Number of uses of blocks so far.
  Status status_;
  std::vector<std::unique_ptr<Block>> blocks_;  ///< The blocks in memory.
  std::vector<Hashed> hashes_;                  ///< Hashes by block number.
};

}  // namespace heddle::checkpoint
