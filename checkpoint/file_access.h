/// \file
/// Reading a checkpoint's files: bounded positional reads and the hash of a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "checkpoint/types.h"

namespace heddle::checkpoint {

struct OpenedFile {
  UniqueFd fd;
  int64_t bytes = 0;
};

/// Opens a regular file for reading; never waits for a FIFO. Errors: kNotFound, kPermissionDenied,
/// kDataLoss when it is not a regular file.
Result<OpenedFile> OpenRegularFile(const std::string& path);

/// Fills `out` from `offset`. Errors: kDataLoss at the file's end, and those of pread(2).
Status ReadAt(int fd, int64_t offset, std::span<std::byte> out, const std::string& path);

/// XXH3-128 of the whole file, 32 lower-case hexadecimal digits. `read`, when given, is called with
/// the bytes of each piece.
Result<std::string> HashFile(const OpenedFile& file,
                             const std::string& path,
                             const std::function<void(int64_t)>& read = {});

/// Size and hash of a file in `folder`. Errors: those of opening and reading.
Result<FileRecord> DescribeFile(const std::string& folder, const std::string& name);

}  // namespace heddle::checkpoint
