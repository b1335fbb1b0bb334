/// \file
/// Reading a checkpoint's files: bounded positional reads, wherever the bytes lie, and the hash of
/// a whole file.
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

/// Bytes that are read by position, whether they lie in a file, in an object store or in memory.
/// They do not change while it lives. Thread: any; reads may run at the same time.
class SourceFile {
 public:
  virtual ~SourceFile() = default;
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;

  /// Path or URL, for messages.
  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }

  /// Fills `out` from `offset`. Errors, which name the file: kDataLoss at its end, and those of
  /// reading.
  virtual Status ReadAt(int64_t offset, std::span<std::byte> out) const = 0;

 protected:
  SourceFile(std::string name, int64_t bytes) : name_(std::move(name)), bytes_(bytes) {}

 private:
  const std::string name_;
  const int64_t bytes_;
};

/// Opens a regular file for reading; never waits for a FIFO. Errors: kNotFound, kPermissionDenied,
/// kDataLoss when it is not a regular file.
Result<std::unique_ptr<SourceFile>> OpenRegularFile(const std::string& path);

/// Errors: kInvalidArgument when the file at `path` is what people find in the place of a model: a
/// pointer of Git LFS, a web page, nothing at all.
Status CheckNoPlaceholder(const std::string& path);

/// A file is hashed by blocks of so many bytes, the last one shorter, so that who writes it need
/// not read it again, in whatever order it is written.
inline constexpr int64_t kHashBlockBytes = int64_t{4} << 20;

/// The hash of a file from those of its blocks: Hash128Hex of these, one after the other. Thread:
/// pure.
std::string CombineBlockHashes(std::span<const Hash128Bytes> hashes);

/// The same of a file that is read for it. `read`, when given, is called with the bytes of each
/// block.
Result<std::string> HashFile(const SourceFile& file, const std::function<void(int64_t)>& read = {});

/// Size and hash of a file in `folder`. Errors: those of opening and reading.
Result<FileRecord> DescribeFile(const std::string& folder, const std::string& name);

}  // namespace heddle::checkpoint
