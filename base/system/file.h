/// \file
/// Files: whole reads with a size limit, durable atomic writes, folders.
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

/// Writes `path` so that after a crash it holds the old or the new content: writes path.tmp, fsyncs
/// it, renames it and fsyncs the folder.
Status WriteFileAtomically(const std::string& path, std::string_view content);

/// Creates a folder and its parents; existing is fine. A name that no file system takes leaves
/// none.
Status MakeFolders(const std::string& path);

/// fsync of a folder, so that a rename in it is durable.
Status SyncFolder(const std::string& path);

bool FileExists(const std::string& path);

/// The part before the last slash: "." for a bare name, "/" for a file of the root.
std::string FolderOf(const std::string& path);

/// `path` as it is meant in a file that lies in `folder`: unchanged when absolute, else
/// folder/path, without "." and without "x/.." where x is a folder. Where x is a symbolic link, or
/// is not there, ".." stays: it is for the file system to say what is above.
std::string ResolvePath(const std::string& folder, const std::string& path);

/// `path` seen from the root of the file system, shorter as ResolvePath makes it; symbolic links
/// are left as they are. Errors: the working folder's, when it is gone.
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
