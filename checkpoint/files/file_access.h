/// \file
/// Access to a checkpoint's files for reading: bounded positional reads from any kind of storage,
/// and the hash of a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// Bytes that are read by position, from a file, an object store or memory. They do not change
/// while the object lives. Thread: any; reads may run concurrently.
class SourceFile {
 public:
  virtual ~SourceFile() = default;
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;

  /// The path or URL, for messages.
  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }

  /// Reads the bytes from `offset` on into `out`. Errors, which name the file: kDataLoss (the file
  /// ends before), and those of reading.
  virtual Status ReadAt(int64_t offset, std::span<std::byte> out) const = 0;

 protected:
  SourceFile(std::string name, int64_t bytes) : name_(std::move(name)), bytes_(bytes) {}

 private:
  const std::string name_;
  const int64_t bytes_;
};

/// Opens a regular file for reading; never blocks on a FIFO. Errors: kNotFound, kPermissionDenied,
/// kDataLoss (not a regular file).
Result<std::unique_ptr<SourceFile>> OpenRegularFile(const std::string& path);

/// Checks that the file at `path` is not a common placeholder for a model. Errors: kInvalidArgument
/// (a pointer of Git LFS, a web page, an empty file).
Status CheckNoPlaceholder(const std::string& path);

/// Bytes of the blocks by which a file is hashed; the last block may be shorter. So a writer need
/// not read the file again, in whatever order it writes it.
inline constexpr int64_t kHashBlockBytes = int64_t{4} << 20;

/// The hash of a file from the hashes of its blocks: Hash128Hex of their concatenation. Thread:
/// pure.
std::string CombineBlockHashes(std::span<const Hash128Bytes> hashes);

/// Reads a file and returns its hash. `read`, if given, is called with the number of bytes of each
/// block. Errors: those of reading.
Result<std::string> HashFile(const SourceFile& file, const std::function<void(int64_t)>& read = {});

/// The name, size and hash of a file in `folder`. Errors: those of opening and reading.
Result<FileRecord> DescribeFile(const std::string& folder, const std::string& name);

}  // namespace heddle::checkpoint
