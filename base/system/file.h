/// \file
/// File operations: whole reads with a size limit, durable atomic writes, folders and paths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace heddle {

/// Reads a regular file of at most `limit` bytes.
/// Errors: kNotFound, kPermissionDenied, kInvalidArgument (a folder), kResourceExhausted (larger).
Result<std::string> ReadFile(const std::string& path, int64_t limit);

/// Writes `path` so that after a crash it has the old or the new content: writes path.tmp, fsyncs
/// it, renames it and fsyncs the folder.
Status WriteFileAtomically(const std::string& path, std::string_view content);

/// Creates a folder and its parents; it is no error if they exist. A path with an invalid name
/// creates none.
Status MakeFolders(const std::string& path);

/// Calls fsync on a folder, so that a rename in it is durable.
Status SyncFolder(const std::string& path);

bool FileExists(const std::string& path);

/// The part of `path` before the last slash: "." for a bare name, "/" for a file in the root.
std::string FolderOf(const std::string& path);

/// The meaning of `path` in a file in `folder`: unchanged if absolute, else folder/path, without
/// "." and without "x/.." if x is a folder. If x is a symbolic link or does not exist, ".." is
/// kept, because only the file system knows the parent.
std::string ResolvePath(const std::string& folder, const std::string& path);

/// The absolute path of `path`, normalised as by ResolvePath; symbolic links are not resolved.
/// Errors: those of getcwd (the working folder was removed).
Result<std::string> AbsolutePath(const std::string& path);

/// A folder under $TMPDIR (or /tmp) that is removed with its content at the end of scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace heddle
